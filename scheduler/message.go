package scheduler

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of asynq's TaskMessage that are read or written here: in
// asynq.proto, which asynq keeps internal.
const (
	fieldErrorMsg = 7
	fieldHeaders  = 15
)

var errMessage = errors.New("not a task message of asynq's")

// lastError is the error text in an encoded TaskMessage.
func lastError(msg []byte) (text string, err error) {
	for len(msg) > 0 {
		field, kind, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return "", errMessage
		}
		msg = msg[n:]
		if n = protowire.ConsumeFieldValue(field, kind, msg); n < 0 {
			return "", errMessage
		}
		if field == fieldErrorMsg && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(msg)
			text = string(value)
		}
		msg = msg[n:]
	}
	return text, nil
}

// withLastError returns an encoded TaskMessage with another error text. Of a
// field that is there twice the last counts.
func withLastError(msg []byte, text string) []byte {
	msg = protowire.AppendTag(msg[:len(msg):len(msg)], fieldErrorMsg, protowire.BytesType)
	return protowire.AppendString(msg, text)
}

// withHeader returns an encoded TaskMessage with one more header.
func withHeader(msg []byte, key, value string) []byte {
	var entry []byte // of a map: field 1 is the key, field 2 the value
	entry = protowire.AppendTag(entry, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, key)
	entry = protowire.AppendTag(entry, 2, protowire.BytesType)
	entry = protowire.AppendString(entry, value)
	msg = protowire.AppendTag(msg[:len(msg):len(msg)], fieldHeaders, protowire.BytesType)
	return protowire.AppendBytes(msg, entry)
}
