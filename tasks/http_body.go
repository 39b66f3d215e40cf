package tasks

import (
	"context"
	"errors"
	"io"
)

// endingBody is an answer's body that is closed when the context of its call ends. Most
// transports see to that; that every call ends in its time must not depend on it.
type endingBody struct {
	io.ReadCloser
	ctx  context.Context
	keep func() bool // takes back that the end of the context closes it
}

func endsWith(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	return &endingBody{body, ctx, context.AfterFunc(ctx, func() { _ = body.Close() })}
}

// Read tells why the context has ended where that has broken off the body: that it was
// closed meanwhile is what follows from it.
func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if cause := context.Cause(b.ctx); cause != nil && err != nil && !errors.Is(err, io.EOF) {
		err = cause
	}
	return n, err
}

func (b *endingBody) Close() error {
	b.keep()
	return b.ReadCloser.Close()
}
