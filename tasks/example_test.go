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
