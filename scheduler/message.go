package scheduler

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

// message is what counts here of a TaskMessage. A handler's context does not tell
// all of it, and what is to be changed is changed in the encoded form: fields that
// a later asynq adds stay as they are.
//
// To change a field is to append it once more: of a single field that is there twice
// protobuf takes the last value, and of a map the last entry of a key. So no message
// is ever decoded whole and encoded again.
type message struct {
	id        string
	maxRetry  int
	retried   int // failures so far
	lastError string
	timeout   int64 // in seconds; 0 is none
	deadline  int64 // a unix second; 0 is none
	unique    bool  // whether it has a Unique lock
}

// errMessage is why a message cannot be read. What it was for is then left to asynq.
var errMessage = errors.New("not a task message of asynq's")

// parseMessage reads an encoded TaskMessage. Fields that it does not know it
// passes over, as protobuf says, and also known ones of another type: another
// asynq may give a number another meaning.
func parseMessage(encoded []byte) (m message, err error) {
	err = eachField(encoded, func(field protowire.Number, kind protowire.Type, value []byte) {
		switch {
		case field == fieldRetried && kind == protowire.VarintType:
			retried, _ := protowire.ConsumeVarint(value)
			m.retried = int(retried)
		case field == fieldRetry && kind == protowire.VarintType:
			maxRetry, _ := protowire.ConsumeVarint(value)
			m.maxRetry = int(maxRetry)
		case field == fieldTimeout && kind == protowire.VarintType:
			timeout, _ := protowire.ConsumeVarint(value)
			m.timeout = int64(timeout)
		case field == fieldDeadline && kind == protowire.VarintType:
			deadline, _ := protowire.ConsumeVarint(value)
			m.deadline = int64(deadline)
		case field == fieldID && kind == protowire.BytesType:
			id, _ := protowire.ConsumeBytes(value)
			m.id = string(id)
		case field == fieldUnique && kind == protowire.BytesType:
			lock, _ := protowire.ConsumeBytes(value)
			m.unique = len(lock) > 0
		case field == fieldErrorMsg && kind == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(value)
			m.lastError = string(text)
		}
	})
	return m, err
}

// parseTask reads the task of an encoded TaskMessage, as its handler gets it.
func parseTask(encoded []byte) (*asynq.Task, error) {
	var name string
	var payload []byte
	headers := map[string]string{}
	err := eachText(encoded, func(field protowire.Number, text []byte) {
		switch field {
		case fieldType:
			name = string(text)
		case fieldPayload:
			payload = text
		case fieldHeaders:
			entry := map[protowire.Number]string{} // 1 is the key, 2 the value
			_ = eachText(text, func(field protowire.Number, text []byte) { entry[field] = string(text) })
			headers[entry[1]] = entry[2]
		}
	})
	return asynq.NewTaskWithHeaders(name, payload, headers), err
}

// eachText is eachField of those that are texts or bytes.
func eachText(encoded []byte, do func(field protowire.Number, text []byte)) error {
	return eachField(encoded, func(field protowire.Number, kind protowire.Type, value []byte) {
		if kind == protowire.BytesType {
			text, _ := protowire.ConsumeBytes(value)
			do(field, text)
		}
	})
}

// eachField calls do with each field of an encoded message, in order; value begins with
// the field's.
func eachField(encoded []byte, do func(field protowire.Number, kind protowire.Type, value []byte)) error {
	for len(encoded) > 0 {
		field, kind, n := protowire.ConsumeTag(encoded)
		if n < 0 {
			return errMessage
		}
		value := encoded[n:]
		if n = protowire.ConsumeFieldValue(field, kind, value); n < 0 {
			return errMessage
		}
		do(field, kind, value)
		encoded = value[n:]
	}
	return nil
}

// withLastError returns an encoded TaskMessage with another error text.
func withLastError(msg []byte, text string) []byte {
	msg = protowire.AppendTag(slices.Clip(msg), fieldErrorMsg, protowire.BytesType)
	return protowire.AppendString(msg, text)
}

// withFailure is withLastError, and has it that this was at a unix second.
func withFailure(msg []byte, text string, at int64) []byte {
	msg = protowire.AppendTag(withLastError(msg, text), fieldFailedAt, protowire.VarintType)
	return protowire.AppendVarint(msg, uint64(at))
}

// withPayload returns an encoded TaskMessage with another payload. Like the others
// it leaves the message that it was given alone: asynq may send that again.
func withPayload(msg, payload []byte) []byte {
	msg = protowire.AppendTag(slices.Clip(msg), fieldPayload, protowire.BytesType)
	return protowire.AppendBytes(msg, payload)
}

// withRetried returns an encoded TaskMessage with another number of failures.
func withRetried(msg []byte, retried int) []byte {
	msg = protowire.AppendTag(slices.Clip(msg), fieldRetried, protowire.VarintType)
	return protowire.AppendVarint(msg, uint64(retried))
}

// withTimes returns an encoded TaskMessage with another timeout and another deadline.
func withTimes(msg []byte, timeout, deadline int64) []byte {
	msg = protowire.AppendTag(slices.Clip(msg), fieldTimeout, protowire.VarintType)
	msg = protowire.AppendVarint(msg, uint64(timeout))
	msg = protowire.AppendTag(msg, fieldDeadline, protowire.VarintType)
	return protowire.AppendVarint(msg, uint64(deadline))
}

// withHeader returns an encoded TaskMessage with one more header, or with another
// value for one that it has.
func withHeader(msg []byte, key, value string) []byte {
	var entry []byte // of a map: field 1 is the key, field 2 the value
	entry = protowire.AppendTag(entry, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, key)
	entry = protowire.AppendTag(entry, 2, protowire.BytesType)
	entry = protowire.AppendString(entry, value)
	msg = protowire.AppendTag(slices.Clip(msg), fieldHeaders, protowire.BytesType)
	return protowire.AppendBytes(msg, entry)
}
