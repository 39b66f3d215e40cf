package headgate_test

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/headgate/headgate/internal/redistest"
)

// compose is what the tests need of docker-compose.yml.
type compose struct {
	Services map[string]service `yaml:"services"`
}

type service struct {
	Command     []string            `yaml:"command"`
	DependsOn   map[string]struct{} `yaml:"depends_on"`
	Healthcheck struct {
		Test []string `yaml:"test"`
	} `yaml:"healthcheck"`
}

func readCompose(t *testing.T) compose {
	t.Helper()
	var c compose
	if err := yaml.Unmarshal([]byte(read(t, "docker-compose.yml")), &c); err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(c.Services))
	if want := []string{"redis", "worker"}; !slices.Equal(names, want) {
		t.Fatalf("docker-compose.yml has the services %q, want %q", names, want)
	}
	return c
}

func TestComposeCommandsExist(t *testing.T) {
	for name, s := range readCompose(t).Services {
		switch command := strings.Join(s.Command, " "); {
		case goRun.MatchString(command):
			if dir := goRun.FindStringSubmatch(command)[1]; !isCommand(t, dir) {
				t.Errorf("service %s runs %s: there is no such command", name, dir)
			}
		case len(s.Command) > 0:
			if _, err := exec.LookPath(s.Command[0]); err != nil {
				t.Errorf("service %s: %v", name, err)
			}
		default:
			t.Errorf("service %s has no command", name)
		}
		for other := range s.DependsOn {
			if _, ok := readCompose(t).Services[other]; !ok {
				t.Errorf("service %s depends on %s, which does not exist", name, other)
			}
		}
	}
}

// A real redis-server must take the arguments and be healthy by its own check.
func TestComposeRedisStarts(t *testing.T) {
	redis := readCompose(t).Services["redis"]
	s := redistest.Run(t, redis.Command[1:]...)
	rdb := s.Client()
	defer rdb.Close()
	settings, err := rdb.ConfigGet(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{
		"maxmemory-policy": "noeviction",
		"appendonly":       "yes",
	} {
		if settings[setting] != want {
			t.Errorf("%s is %q, want %q", setting, settings[setting], want)
		}
	}
	if want := []string{"CMD", "redis-cli", "ping"}; !slices.Equal(redis.Healthcheck.Test, want) {
		t.Errorf("the health check is %q, want %q", redis.Healthcheck.Test, want)
	}
}
