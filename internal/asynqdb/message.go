package asynqdb

import (
	"errors"
	"slices"

	"github.com/hibiken/asynq"
	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of the fields of asynq's TaskMessage that are used here, from asynq.proto, which is
// internal to asynq.
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

// Message contains the fields of asynq's TaskMessage that are used here. The With functions change
// a field by appending it again, because protobuf uses the last value. So fields that a later asynq
// adds stay as they are. The With functions return a copy, because asynq may send the given message
// again.
type Message struct {
	Type      string
	Payload   []byte
	Headers   map[string]string
	ID        string
	MaxRetry  int
	Retried   int // failures so far
	LastError string
	Timeout   int64 // in seconds; 0 is none
	Deadline  int64 // a Unix second; 0 is none
	FailedAt  int64 // Unix second of the last failed attempt; 0 if none
	Unique    bool  // whether the job has a Unique lock
}

// errMessage is returned for an undecodable message; the caller passes it to asynq unchanged.
var errMessage = errors.New("not a task message of asynq's")

// ParseMessage reads an encoded TaskMessage. It ignores unknown fields, and fields with an
// unexpected wire type, because another asynq version may use the number differently.
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
		case fieldType:
			m.Type = string(text)
		case fieldPayload:
			m.Payload = text
		case fieldID:
			m.ID = string(text)
		case fieldUnique:
			m.Unique = len(text) > 0
		case fieldErrorMsg:
			m.LastError = string(text)
		case fieldHeaders:
			if m.Headers == nil {
				m.Headers = map[string]string{}
			}
			entry := map[protowire.Number]string{} // 1 is the key, 2 the value
			_ = eachField(text, nil, func(field protowire.Number, text []byte) { entry[field] = string(text) })
			m.Headers[entry[1]] = entry[2]
		}
	})
	return m, err
}

// Task is the task as its handler gets it.
func (m Message) Task() *asynq.Task { return asynq.NewTaskWithHeaders(m.Type, m.Payload, m.Headers) }

// eachField calls number for each varint field (if number is not nil) and text for each
// length-delimited field, in order.
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

// WithFailure returns an encoded TaskMessage with another error text and another time of the last
// failure, in Unix seconds.
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

// WithHeader returns an encoded TaskMessage with a header. If the message already has a header of that
// name, WithHeader replaces its value.
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
