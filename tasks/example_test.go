package tasks_test

import (
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/tasks"
)

func ExampleNewHTTPRequest() {
	task, err := tasks.NewHTTPRequest(tasks.HTTPRequest{
		Method:  "POST",
		URL:     "https://api.example.com/items?a=1&b=2",
		Headers: map[string]string{"Content-Type": "application/json"},
		Body:    `{"n":1}`,
		Timeout: 10 * time.Second,
		Expect:  []int{201, 409},
	}, asynq.Retention(24*time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(task.Type())
	fmt.Println(string(task.Payload()))
	// Output:
	// http:request
	// {"method":"POST","url":"https://api.example.com/items?a=1&b=2","headers":{"Content-Type":"application/json"},"body":"{\"n\":1}","expect":[201,409],"timeout":"10s"}
}

func ExampleNewHTTPRequest_wrong() {
	_, err := tasks.NewHTTPRequest(tasks.HTTPRequest{URL: "example.com/items"})
	fmt.Println(err)
	// Output:
	// http:request: url "example.com/items": want it to begin with http:// or https://
}

func ExampleValidate() {
	fmt.Println(tasks.Validate("http:request", []byte(`{"url": "https://example.com/"}`)))
	fmt.Println(tasks.Validate("http:request", []byte(`{"url": "https://example.com/", "timeout": 10}`)))
	// Output:
	// <nil>
	// timeout 10: want a text such as "10s"
}

func ExampleRegister() {
	mux := asynq.NewServeMux()
	tasks.Register(mux)
	fmt.Println(tasks.Types())
	// Output:
	// [http:request]
}
