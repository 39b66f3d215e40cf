package tasks_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
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

// A worker that may call its own machine and give out one secret.
func ExampleHTTPHandler() {
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("the API sees:", r.Header.Get("Authorization"))
	}))
	defer api.Close()
	os.Setenv("EXAMPLE_TOKEN", "Bearer 0123456789")
	defer os.Unsetenv("EXAMPLE_TOKEN")

	task, err := tasks.NewHTTPRequest(tasks.HTTPRequest{
		URL:     api.URL,
		Headers: map[string]string{"Authorization": "${env:EXAMPLE_TOKEN}"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := &tasks.HTTPHandler{
		AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Secrets:      []string{"env:EXAMPLE_TOKEN"},
	}
	fmt.Println("the job is done:", handler.ProcessTask(context.Background(), task) == nil)
	// Output:
	// the API sees: Bearer 0123456789
	// the job is done: true
}
