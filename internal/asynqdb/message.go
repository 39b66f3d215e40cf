package asynqdb

import (
	"fmt"
	"slices"

	"github.com/hibiken/asynq"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// taskMessage and workerInfo are types of asynq. Their Go types are internal to asynq, but protobuf
// knows them.
var taskMessage, workerInfo = messageType("asynq.TaskMessage"), messageType("asynq.WorkerInfo")

func messageType(name protoreflect.FullName) protoreflect.MessageType {
	t, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		panic(err) // this package imports asynq, which registers the type
	}
	return t
}

// Message has those fields of asynq's TaskMessage that headgate uses.
type Message struct {
	Task      *asynq.Task // as its handler gets it
	ID        string
	MaxRetry  int
	Retried   int // number of failures so far
	LastError string
	Timeout   int64 // in seconds; 0 if the job has none
	Deadline  int64 // a Unix second; 0 if the job has none
	FailedAt  int64 // Unix second of the last failed attempt; 0 if no attempt failed
	Retention int64 // in seconds; 0 if the job has none
}

// ParseMessage decodes a TaskMessage.
func ParseMessage(encoded []byte) (Message, error) {
	read := taskMessage.New()
	if err := proto.Unmarshal(encoded, read.Interface()); err != nil {
		return Message{}, fmt.Errorf("not a task message of asynq's: %w", err)
	}
	field := func(name protoreflect.Name) protoreflect.Value {
		return read.Get(read.Descriptor().Fields().ByName(name))
	}
	var headers map[string]string
	for key, value := range field("headers").Map().Range {
		if headers == nil {
			headers = map[string]string{}
		}
		headers[key.String()] = value.String()
	}
	return Message{
		Task: asynq.NewTaskWithHeaders(field("type").String(), field("payload").Bytes(), headers), ID: field("id").String(),
		MaxRetry: int(field("retry").Int()), Retried: int(field("retried").Int()), LastError: field("error_msg").String(),
		Timeout: field("timeout").Int(), Deadline: field("deadline").Int(), FailedAt: field("last_failed_at").Int(),
		Retention: field("retention").Int(),
	}, nil
}

// with returns a copy of an encoded TaskMessage in which a field has another value. It appends the
// field, because protobuf uses the last value of a field. msg stays unchanged, because asynq may
// send msg again.
func with[T []byte | int64](msg []byte, name protoreflect.Name, value T) []byte {
	number := taskMessage.Descriptor().Fields().ByName(name).Number()
	switch value := any(value).(type) {
	case int64:
		return protowire.AppendVarint(protowire.AppendTag(slices.Clip(msg), number, protowire.VarintType), uint64(value))
	case []byte:
		return protowire.AppendBytes(protowire.AppendTag(slices.Clip(msg), number, protowire.BytesType), value)
	}
	return msg
}

// WithLastError returns an encoded TaskMessage with another error text.
func WithLastError(msg []byte, text string) []byte { return with(msg, "error_msg", []byte(text)) }

// WithFailure returns an encoded TaskMessage with another error text and another time of the last
// failure, in Unix seconds.
func WithFailure(msg []byte, text string, at int64) []byte {
	return with(WithLastError(msg, text), "last_failed_at", at)
}

// WithPayload returns an encoded TaskMessage with another payload.
func WithPayload(msg, payload []byte) []byte { return with(msg, "payload", payload) }

// WithRetried returns an encoded TaskMessage with another number of failures.
func WithRetried(msg []byte, retried int) []byte { return with(msg, "retried", int64(retried)) }

// WithTimes returns an encoded TaskMessage with another timeout in seconds and another deadline in
// Unix seconds. 0 means no timeout or no deadline.
func WithTimes(msg []byte, timeout, deadline int64) []byte {
	return with(with(msg, "timeout", timeout), "deadline", deadline)
}

// WithHeader returns an encoded TaskMessage with a header added. The header replaces an existing
// header of the same name.
func WithHeader(msg []byte, key, value string) []byte {
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key) // protobuf field 1 of a map entry is its key, and 2 its value
	entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), value)
	return with(msg, "headers", entry)
}

// maxShownPayload is the maximum size in bytes of an encoded WorkerInfo with a payload.
const maxShownPayload = 64 << 10

// WithoutLargePayloads returns the arguments of the heartbeat in which a server writes its active
// jobs, without the payloads of large jobs. asynq would write, and each reader read, the payloads of
// all active jobs every few seconds. The arguments from the third on are IDs and WorkerInfos.
func WithoutLargePayloads(args []any) []any {
	args = slices.Clone(args)
	for i := 3; i < len(args); i += 2 {
		encoded, _ := args[i].([]byte)
		if len(encoded) <= maxShownPayload {
			continue
		}
		info := workerInfo.New()
		if err := proto.Unmarshal(encoded, info.Interface()); err != nil {
			continue
		}
		info.Clear(info.Descriptor().Fields().ByName("task_payload"))
		if short, err := proto.Marshal(info.Interface()); err == nil {
			args[i] = short
		}
	}
	return args
}
