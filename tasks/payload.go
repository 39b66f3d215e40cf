package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/strictjson"
)

// parse reads a payload strictly and validates it.
func parse[P interface{ Validate() error }](payload []byte) (of P, err error) {
	if err = strictjson.Decode("payload", payload, &of); err == nil {
		err = of.Validate()
	}
	return of, err
}

// newTask validates a payload and returns its task.
func newTask(typename string, of interface{ Validate() error }, opts []asynq.Option) (*asynq.Task, error) {
	err := of.Validate()
	var text []byte
	if err == nil {
		text, err = marshal(of)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", typename, err)
	}
	return asynq.NewTask(typename, text, opts...), nil
}

// marshal is json.Marshal without \u0026 for &, because people read payloads and results.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
