package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// isProgram tells the test binary in the environment to be the program, so that no other is linked.
const isProgram = "LLM_IS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(isProgram) == "" {
		os.Exit(m.Run())
	}
	main()
}

// TestLLM_Answers runs the program as a user does, with an API that refuses the first call.
func TestLLM_Answers(t *testing.T) {
	refused := new(atomic.Bool)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !refused.Swap(true) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		var question struct{ Messages []struct{ Content string } }
		if err := json.NewDecoder(r.Body).Decode(&question); err != nil || r.Header.Get("Authorization") != "Bearer key" {
			t.Errorf("%v with Authorization %q", err, r.Header.Get("Authorization"))
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"choices": []any{map[string]any{"message": map[string]any{"content": "answer to " + question.Messages[0].Content}}},
			"usage":   map[string]any{"total_tokens": 40},
		})
	}))
	defer api.Close()
	program := exec.CommandContext(t.Context(), os.Args[0])
	program.Env = append(os.Environ(), isProgram+"=1", "REDIS_URL=redis://"+redistest.Run(t).Addr(), "MODEL_URL="+api.URL, "MODEL_KEY=key")
	program.Stdin, program.Stderr = strings.NewReader("one\ntwo\nthree\n"), os.Stderr
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	var answers []string
	for lines := bufio.NewScanner(out); len(answers) < 3 && lines.Scan(); {
		answers = append(answers, lines.Text())
	}
	slices.Sort(answers)
	if want := []string{"answer to one", "answer to three", "answer to two"}; !slices.Equal(answers, want) {
		t.Errorf("answers %q, want %q", answers, want)
	}
	if err := program.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}
