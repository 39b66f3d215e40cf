package asynqdb

import (
	"errors"
	"slices"

	"github.com/hibiken/asynq"
	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of asynq's TaskMessage that are read or written here: in
// asynq.proto, which asynq keeps internal.
const (
	fieldType     = 1
	fieldPayload  = 2
	fieldID       = 3
	fieldRetry    = 5
	fieldRetried  = 6
	fieldErrorMsg = 7
	fieldTimeout  = 8
	fieldDeadline = 9
	fieldUnique   = 10
	fieldFailedAt = 11
	fieldHeaders  = 15
)

// Message is what counts here of a TaskMessage. A handler's context does not tell
// all of it, and what is to be changed is changed in the encoded form: fields that
// a later asynq adds stay as they are.
//
// To change a field is to append it once more: of a single field that is there twice
// protobuf takes the last value, and of a map the last entry of a key. So no message
// is ever decoded whole and encoded again. The message that was given stays as it is:
// asynq may send it again.
type Message struct {
	ID        string
	MaxRetry  int
	Retried   int // failures so far
	LastError string
	Timeout   int64 // in seconds; 0 is none
	Deadline  int64 // a unix second; 0 is none
	FailedAt  int64 // a unix second at which an attempt ended that was no success; 0 for none
	Unique    bool  // whether it has a Unique lock
}

// errMessage is why a message cannot be read. What it was for is then left to asynq.
var errMessage = errors.New("not a task message of asynq's")

// ParseMessage reads an encoded TaskMessage. Fields that it does not know it
// passes over, as protobuf says, and also known ones of another type: another
// asynq may give a number another meaning.
func ParseMessage(encoded []byte) (m Message, err error) {
	err = eachField(encoded, func(field protowire.Number, n int64) {
		switch field {
		case fieldRetried:
			m.Retried = int(n)
		case fieldRetry:
			m.MaxRetry = int(n)
		case fieldTimeout:
			m.Timeout = n
		case fieldDeadline:
			m.Deadline = n
		case fieldFailedAt:
			m.FailedAt = n
		}
	}, func(field protowire.Number, text []byte) {
		switch field {
		case fieldID:
			m.ID = string(text)
		case fieldUnique:
			m.Unique = len(text) > 0
		case fieldErrorMsg:
			m.LastError = string(text)
		}
	})
	return m, err
}

// ParseTask reads the task of an encoded TaskMessage, as its handler gets it.
func ParseTask(encoded []byte) (*asynq.Task, error) {
	var name string
	var payload []byte
	headers := map[string]string{}
	err := eachField(encoded, nil, func(field protowire.Number, text []byte) {
		switch field {
		case fieldType:
			name = string(text)
		case fieldPayload:
			payload = text
		case fieldHeaders:
			entry := map[protowire.Number]string{} // 1 is the key, 2 the value
			_ = eachField(text, nil, func(field protowire.Number, text []byte) { entry[field] = string(text) })
			headers[entry[1]] = entry[2]
		}
	})
	return asynq.NewTaskWithHeaders(name, payload, headers), err
}

// eachField calls number with each field of an encoded message that is a number, unless that
// is nil, and text with each that is a text or bytes, in order.
func eachField(encoded []byte, number func(protowire.Number, int64), text func(protowire.Number, []byte)) error {
	for len(encoded) > 0 {
		field, kind, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return errMessage
		}
		value := encoded[n:]
		if n = protowire.ConsumeFieldValue(field, kind, value); n < 0 {
			return errMessage
		}
		switch {
		case kind == protowire.VarintType && number != nil:
			v, _ := protowire.ConsumeVarint(value)
			number(field, int64(v))
		case kind == protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			text(field, v)
		}
		encoded = value[n:]
	}
	return nil
}

// WithLastError returns an encoded TaskMessage with another error text.
func WithLastError(msg []byte, text string) []byte {
	return appendBytes(slices.Clip(msg), fieldErrorMsg, []byte(text))
}

// WithFailure is WithLastError, and has it that this was at a unix second.
func WithFailure(msg []byte, text string, at int64) []byte {
	return appendNumber(WithLastError(msg, text), fieldFailedAt, at)
}

// WithPayload returns an encoded TaskMessage with another payload.
func WithPayload(msg, payload []byte) []byte {
	return appendBytes(slices.Clip(msg), fieldPayload, payload)
}

// WithRetried returns an encoded TaskMessage with another number of failures.
func WithRetried(msg []byte, retried int) []byte {
	return appendNumber(slices.Clip(msg), fieldRetried, int64(retried))
}

// WithTimes returns an encoded TaskMessage with another timeout and another deadline.
func WithTimes(msg []byte, timeout, deadline int64) []byte {
	return appendNumber(appendNumber(slices.Clip(msg), fieldTimeout, timeout), fieldDeadline, deadline)
}

// WithHeader returns an encoded TaskMessage with one more header, or with another
// value for one that it has.
func WithHeader(msg []byte, key, value string) []byte {
	entry := appendBytes(appendBytes(nil, 1, []byte(key)), 2, []byte(value)) // of a map
	return appendBytes(slices.Clip(msg), fieldHeaders, entry)
}

func appendBytes(msg []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(msg, field, protowire.BytesType), value)
}

func appendNumber(msg []byte, field protowire.Number, n int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(msg, field, protowire.VarintType), uint64(n))
}
