package deploy_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"
)

// compose reads docker-compose.yml as docker compose does, in an environment of the
// test's own.
func compose(t *testing.T, environment ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"docker-compose.yml"}, cli.WithName("headgate"), cli.WithEnv(environment))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// TestComposeServices: each is reached from this machine only, comes back, is asked
// how it is, and mounts what there is.
func TestComposeServices(t *testing.T) {
	project := compose(t)
	names := slices.Sorted(maps.Keys(project.Services))
	if want := []string{"alertmanager", "api", "grafana", "prometheus", "redis", "worker-1", "worker-2"}; !slices.Equal(names, want) {
		t.Fatalf("the services are %q, want %q", names, want)
	}
	for name, s := range project.Services {
		if len(s.Ports) == 0 || s.Restart != "unless-stopped" || s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 || s.HealthCheck.Test[0] != "CMD" {
			t.Errorf("%s: want a port, restart: unless-stopped and a health check without a shell", name)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %s at %q, want 127.0.0.1", name, p.Published, p.HostIP)
			}
		}
		if image, tag, _ := strings.Cut(s.Image, ":"); s.Build == nil && (tag == "" || tag == "latest") {
			t.Errorf("%s: image %s has no tag", name, image)
		}
		if s.Build != nil && (s.Init == nil || !*s.Init) {
			t.Errorf("%s: want init: true, for what jobs' commands leave behind", name)
		}
		checkVolumes(t, project, s)
	}
	for _, name := range []string{"worker-1", "worker-2"} {
		if s := project.Services[name]; s.DependsOn["redis"].Condition != types.ServiceConditionHealthy {
			t.Errorf("%s does not wait for redis", name)
		}
	}
}

func checkVolumes(t *testing.T, project *types.Project, s types.ServiceConfig) {
	t.Helper()
	for _, v := range s.Volumes {
		switch v.Type {
		case types.VolumeTypeBind:
			if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
				t.Errorf("%s mounts %s at %s: %v; want what there is, to read only", s.Name, v.Source, v.Target, err)
			}
		case types.VolumeTypeVolume:
			if _, ok := project.Volumes[v.Source]; !ok {
				t.Errorf("%s: there is no volume %s", s.Name, v.Source)
			}
		default:
			t.Errorf("%s: a volume of type %s", s.Name, v.Type)
		}
	}
}

// TestComposeSecrets: the environment overrides the file.
func TestComposeSecrets(t *testing.T) {
	project := compose(t, "HEADGATE_PAGE_TOKEN=one-of-my-own", "GRAFANA_PASSWORD=another-one")
	for service, variable := range map[string]string{
		"worker-1": "HEADGATE_PAGE_TOKEN", "worker-2": "HEADGATE_PAGE_TOKEN", "grafana": "GF_SECURITY_ADMIN_PASSWORD",
	} {
		want := map[string]string{"HEADGATE_PAGE_TOKEN": "one-of-my-own", "GF_SECURITY_ADMIN_PASSWORD": "another-one"}[variable]
		if got := project.Services[service].Environment[variable]; got == nil || *got != want {
			t.Errorf("%s: %s is not that of the environment", service, variable)
		}
		if got := compose(t).Services[service].Environment[variable]; got == nil || *got != "only-for-trying-out" {
			t.Errorf("%s: the default of %s is not only-for-trying-out", service, variable)
		}
	}
}

// outside is the file of the repository that a container sees at a path.
func outside(t *testing.T, s types.ServiceConfig, path string) string {
	t.Helper()
	for _, v := range s.Volumes {
		if rest, ok := strings.CutPrefix(path+"/", v.Target+"/"); ok && v.Type == types.VolumeTypeBind {
			return filepath.Join(v.Source, rest)
		}
	}
	t.Fatalf("%s sees nothing at %s", s.Name, path)
	return ""
}

// TestComposeAlertmanager: amtool takes the config, Prometheus knows where to send alerts,
// and each alert that is held back for another is one that there is.
func TestComposeAlertmanager(t *testing.T) {
	project := compose(t)
	path := outside(t, project.Services["alertmanager"], "/etc/headgate/alertmanager.yml")
	if out, err := exec.CommandContext(t.Context(), "amtool", "check-config", path).CombinedOutput(); err != nil {
		t.Errorf("amtool check-config: %v: make test installs it\n%s", err, out)
	}
	var prometheus struct {
		Alerting struct {
			Alertmanagers []struct {
				Targets []struct{ Targets []string } `yaml:"static_configs"`
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, outside(t, project.Services["prometheus"], "/etc/headgate/prometheus.yml"))), &prometheus); err != nil {
		t.Fatal(err)
	}
	if got := prometheus.Alerting.Alertmanagers; len(got) != 1 || got[0].Targets[0].Targets[0] != "alertmanager:9093" {
		t.Errorf("Prometheus sends alerts to %+v, want alertmanager:9093", got)
	}
	rules := read(t, "dashboards/rules/headgate.yaml")
	for _, alert := range regexp.MustCompile(`Headgate\w+`).FindAllString(read(t, path), -1) {
		if !strings.Contains(rules, "alert: "+alert+"\n") {
			t.Errorf("%s names %s, which is no alert", path, alert)
		}
	}
}
