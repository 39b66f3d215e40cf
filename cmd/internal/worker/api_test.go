package worker

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

const (
	apiToken = "open sesame for jobs"
	apiPage  = "../../../docs/configuration.md"
)

// example returns the code block of a language in the section of the API.
func example(t *testing.T, language string) string {
	t.Helper()
	_, section, _ := strings.Cut(proctest.ReadFile(t, apiPage), "\n## api\n")
	block := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```").FindStringSubmatch(section)
	if block == nil {
		t.Fatalf("the section has no example in %s", language)
	}
	return block[1]
}

// TestAPI_Examples: the programs of the page add jobs to a worker, once however often they run.
func TestAPI_Examples(t *testing.T) {
	rdb := redistest.Run(t)
	t.Setenv("HEADGATE_API_TOKEN", apiToken)
	config := regexp.MustCompile(`(?m)^api: .*`).FindString(proctest.ReadFile(t, apiPage))
	url, _ := runWorker(t, rdb, config+"\npage: {token: open sesame}\n")
	inspector := asynq.NewInspectorFromRedisClient(rdb.Client())
	if err := inspector.PauseQueue("default"); err != nil { // so that no job runs
		t.Fatal(err)
	}
	for _, tt := range []struct {
		language, first, again string
		program                []string
		jobs                   []string
	}{
		{"sh", `"enqueued":1,"there_already":0`, `"enqueued":0,"there_already":1`, []string{"curl", "sh", "-c"}, []string{"order-1"}},
		{"python", "202 {'enqueued': 2, 'there_already': 1", "409 {'enqueued': 0, 'there_already': 3", []string{"python3", "python3", "-c"}, []string{"order-2", "order-3"}},
	} {
		if _, err := exec.LookPath(tt.program[0]); err != nil {
			t.Logf("skips the example in %s: %v", tt.language, err)
			continue
		}
		code := strings.ReplaceAll(example(t, tt.language), "http://localhost:9090", url)
		run := func() string {
			command := exec.CommandContext(t.Context(), tt.program[1], append(tt.program[2:], code)...)
			command.Env = append(os.Environ(), "HEADGATE_API_TOKEN="+apiToken)
			out, err := command.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v", tt.language, err)
			}
			return string(out)
		}
		if tt.language == "python" { // the first job is there if curl is
			if _, err := inspector.GetTaskInfo("default", "order-1"); err != nil {
				tt.first = "202 {'enqueued': 3, 'there_already': 0"
			}
		}
		if out := run(); !strings.Contains(out, tt.first) {
			t.Errorf("%s: %s\nwant %s", tt.language, out, tt.first)
		}
		if out := run(); !strings.Contains(out, tt.again) {
			t.Errorf("%s: %s\nwant %s", tt.language, out, tt.again)
		}
		for _, id := range tt.jobs {
			if _, err := inspector.GetTaskInfo("default", id); err != nil {
				t.Errorf("job %s: %v", id, err)
			}
		}
	}
}

// TestAPI_Embedded: a worker that runs its own Redis adds jobs to it.
func TestAPI_Embedded(t *testing.T) {
	t.Chdir(t.TempDir())
	post := func(url, token string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/jobs", strings.NewReader(`{"type":"exec:say","id":"a"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	text := "listen: :0\nshutdown_timeout: 1ms\napi: {token: " + apiToken + "}\ncommands: {say: {run: [sleep, \"60\"]}}\n"
	proctest.Replace(t, "headgate.yaml", text+"page: {token: open sesame}\n")
	load := func() (*config.Config, error) { return config.Load("headgate.yaml") }
	conf, err := load()
	if err != nil {
		t.Fatal(err)
	}
	log := new(proctest.Log)
	w, err := New(conf, Options{File: "headgate.yaml", Load: load, Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	proctest.Start(t, log, w.Run)
	url := log.URL(t)
	if code, text := post(url, apiToken); code != 202 || !strings.Contains(text, `"id":"a","status":"enqueued"`) {
		t.Errorf("%d %s", code, text)
	}
	if code, text := post(url, apiToken); code != 409 {
		t.Errorf("again: %d %s", code, text)
	}
	if code, text := post(url, "open sesame"); code != 401 {
		t.Errorf("with the page's token: %d %s", code, text)
	}
	if strings.Contains(log.String(), apiToken) {
		t.Errorf("the log has the token: %s", log)
	}
}
