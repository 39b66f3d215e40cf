package worker

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/tasks"
)

// A server that answers with the reference to a secret does not get it by way of what
// follows on its answer, and one that the config names is sent. Real sockets and a real
// Redis.
func TestThenSendsNoSecretThatAnAnswerNames(t *testing.T) {
	t.Setenv("API_TOKEN", "the-workers-own")
	asked := make(chan *http.Request, 10)
	var site *httptest.Server
	site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/next" {
			asked <- r
			return
		}
		fmt.Fprintf(w, `{"next":%q,"x":"${env:API_TOKEN}","dollar":"$","rest":"{env:API_TOKEN}"}`, site.URL+"/next?x=${env:API_TOKEN}")
	}))
	defer site.Close()
	conf, err := config.Parse("then", []byte(`
http: {secrets: ["env:API_TOKEN"], allow_private: [127.0.0.0/8]}
tasks:
  http:request:
    then:
      - type: http:request
        when: fromJSON(result.body)?.next != nil
        payload:
          url: "${fromJSON(result.body).next}&y=${fromJSON(result.body).dollar}${fromJSON(result.body).rest}&own=$${env:API_TOKEN}"
          headers: {X-Own: "$${env:API_TOKEN}", X-Theirs: "${fromJSON(result.body).x}"}
`))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redistest.Real(t)
	handlers, err := newHandlers(conf)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	w := &Worker{redis: rdb, log: log}
	w.config.Store(conf)
	server, err := scheduler.NewServer(rdb, scheduler.Rules{For: config.RuleIn(w.config.Load)}, asynq.Config{Concurrency: 1, Logger: asynqLog{log}}, scheduler.WithLogger(log))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(w.goOn(handlers.calls)); err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	task, err := tasks.NewHTTPRequest(tasks.HTTPRequest{URL: site.URL}, asynq.MaxRetry(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scheduler.NewClient(rdb).Enqueue(task, asynq.Retention(time.Hour)); err != nil {
		t.Fatal(err)
	}
	var r *http.Request
	select {
	case r = <-asked:
	case <-time.After(time.Minute):
		t.Fatal("nothing followed")
	}
	want := url.Values{"x": {"${env:API_TOKEN}"}, "y": {"${env:API_TOKEN}"}, "own": {"the-workers-own"}}
	if got := r.URL.Query(); got.Encode() != want.Encode() {
		t.Errorf("the query was %v, want %v", got, want)
	}
	if own, theirs := r.Header.Get("X-Own"), r.Header.Get("X-Theirs"); own != "the-workers-own" || theirs != "${env:API_TOKEN}" {
		t.Errorf("the headers were %q and %q", own, theirs)
	}
}
