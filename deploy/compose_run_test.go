package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// start runs a service's command until the test ends, with replacements for paths and hosts of
// containers, and waits until it listens.
func start(t *testing.T, s types.ServiceConfig, program string, args []string, here ...string) (log *proctest.Log, address string) {
	t.Helper()
	replace := strings.NewReplacer(here...)
	for i, arg := range args {
		args[i] = replace.Replace(arg)
	}
	var env []string
	for name, value := range s.Environment {
		env = append(env, name+"="+*value)
	}
	log = proctest.Process(t, env, program, args...)
	return log, strings.TrimPrefix(log.URL(t), "http://")
}

// testComposeRuns runs the commands of docker-compose.yml as processes, from what the Dockerfile
// builds: jobs reach the API, which rejects no call.
func testComposeRuns(t *testing.T, bin string) {
	project := compose(t)
	rdb := redistest.Run(t, project.Services["redis"].Command[1:]...)

	s := project.Services["api"]
	api, apiAt := start(t, s, filepath.Join(bin, s.Command[0]), s.Command[1:], "0.0.0.0:8080", "127.0.0.1:0")
	healthy(t, bin, s, apiAt)

	for _, name := range []string{"worker-1", "worker-2"} {
		s := project.Services[name]
		config := filepath.Join(t.TempDir(), "headgate.yaml")
		rewrite(t, outside(t, s, "/etc/headgate/headgate.yaml"), config, "http://api:8080", "http://"+apiAt, "172.16.0.0/12", "127.0.0.0/8")
		_, at := start(t, s, filepath.Join(bin, s.Command[0]), s.Command[1:],
			"/etc/headgate/headgate.yaml", config, "redis://redis:6379", rdb.URL(), "0.0.0.0:9090", "127.0.0.1:0")
		healthy(t, bin, s, at)
	}

	proctest.Until(t, "call that was served", func() (bool, any) { return strings.Contains(api.String(), "served "), api })
	if said := api.String(); strings.Contains(strings.ReplaceAll(said, "rejected 0;", ""), "rejected") {
		t.Errorf("the API rejected calls:\n%s", said)
	}
}

// healthy waits until a service's health check succeeds. Docker repeats it, too.
func healthy(t *testing.T, bin string, s types.ServiceConfig, at string) {
	t.Helper()
	test := s.HealthCheck.Test
	port := regexp.MustCompile(`^:\d+$`)
	args := append([]string(nil), test[2:]...)
	for i := range args {
		args[i] = port.ReplaceAllString(args[i], at)
	}
	proctest.Until(t, fmt.Sprintf("success of %s's health check %q", s.Name, args), func() (bool, any) {
		out, err := exec.CommandContext(t.Context(), filepath.Join(bin, test[1]), args...).CombinedOutput()
		return err == nil, fmt.Sprintf("%v\n%s", err, out)
	})
}

// rewrite copies a file with pairs of texts replaced. Each must be there.
func rewrite(t *testing.T, from, to string, words ...string) {
	t.Helper()
	text := read(t, from)
	for i := 0; i < len(words); i += 2 {
		if !strings.Contains(text, words[i]) {
			t.Fatalf("%s does not have %q", from, words[i])
		}
	}
	if err := os.WriteFile(to, []byte(strings.NewReplacer(words...).Replace(text)), 0o600); err != nil {
		t.Fatal(err)
	}
}
