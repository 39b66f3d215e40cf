package example

import (
	"context"
	"errors"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/embedded"
)

// Redis is a Redis within this process, until done is called. A program that is
// not an example takes redis.NewClient of a server.
func Redis(ctx context.Context) (rdb redis.UniversalClient, done func(), err error) {
	folder, err := os.MkdirTemp("", "headgate-example-")
	if err != nil {
		return nil, nil, err
	}
	server, err := embedded.Folder(folder).Start()
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	end := func() {
		_ = server.Close()
		_ = os.RemoveAll(folder)
	}
	if rdb, err = cli.DialEmbedded(ctx, server.Addr()); err != nil {
		end()
		return nil, nil, err
	}
	return rdb, func() { _ = rdb.Close(); end() }, nil
}
