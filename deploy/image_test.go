package deploy_test

import (
	"debug/elf"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// step is an instruction of the Dockerfile.
type step struct{ name, text string }

// stages are the Dockerfile's instructions, by stage.
func stages(t *testing.T) (all [][]step) {
	t.Helper()
	for line := range strings.Lines(read(t, "Dockerfile")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, text, _ := strings.Cut(line, " ")
		if name == "FROM" {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], step{name, text})
	}
	return all
}

// texts are those of a stage's instructions of one name.
func texts(stage []step, name string) (all []string) {
	for _, s := range stage {
		if s.name == name {
			all = append(all, s.text)
		}
	}
	return all
}

var mount = regexp.MustCompile(`^(--mount=\S+ )*`)

// build takes the Dockerfile's first stage in a folder with nothing but what
// .dockerignore lets through, and returns the folder that the image's commands come
// from.
func build(t *testing.T) string {
	t.Helper()
	stage := stages(t)[0]
	src := t.TempDir()
	copyContext(t, src)
	for _, text := range texts(stage, "RUN") {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", mount.ReplaceAllString(text, ""))
		cmd.Dir, cmd.Env = src, os.Environ()
		for _, text := range texts(stage, "ENV") {
			for variable := range strings.FieldsSeq(text) {
				if !strings.Contains(variable, "=/cache/") { // the machine's own caches do
					cmd.Env = append(cmd.Env, variable)
				}
			}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("RUN %s: %v\n%s", text, err, out)
		}
	}
	return filepath.Join(src, "out")
}

// copyContext copies what the builder would be sent.
func copyContext(t *testing.T, to string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(read(t, ".dockerignore")), "\n")
	if !slices.Contains(lines, "*") {
		t.Fatal(".dockerignore lets through what it does not name")
	}
	for _, line := range lines {
		path, ok := strings.CutPrefix(line, "!")
		if !ok {
			continue
		}
		info, err := os.Stat(path)
		switch {
		case err != nil:
			t.Fatal(err)
		case info.IsDir():
			err = os.CopyFS(filepath.Join(to, path), os.DirFS(path))
		default:
			err = os.WriteFile(filepath.Join(to, path), []byte(read(t, path)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestImage: it has both commands, static, and runs them without rights or a shell;
// and docker-compose.yml runs with it.
func TestImage(t *testing.T) {
	all := stages(t)
	last := all[len(all)-1]
	for _, stage := range all {
		image, _, _ := strings.Cut(stage[0].text, " ")
		if _, tag, ok := strings.Cut(image, ":"); !ok || tag == "latest" {
			t.Errorf("the image %s has no tag", image)
		}
	}
	if user := texts(last, "USER"); !slices.Equal(user, []string{"nonroot"}) {
		t.Errorf("it runs as %q", user)
	}
	copies := texts(last, "COPY")
	if want := []string{"--from=build /src/out/ /usr/local/bin/"}; !slices.Equal(copies, want) {
		t.Errorf("it copies %q, want %q", copies, want)
	}
	bin := build(t)
	for _, name := range []string{"headgate-worker", "headgate-enqueue"} {
		checkStatic(t, filepath.Join(bin, name))
	}
	_, check, _ := strings.Cut(texts(last, "HEALTHCHECK")[0], " CMD ")
	for _, text := range []string{check, texts(last, "CMD")[0]} {
		var command []string
		if err := json.Unmarshal([]byte(text), &command); err != nil {
			t.Fatalf("%s needs a shell: %v", text, err)
		}
		help := exec.CommandContext(t.Context(), filepath.Join(bin, command[0]), append(command[1:], "--help")...)
		if out, err := help.CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", command, err, out)
		}
	}
	t.Run("compose", func(t *testing.T) { testComposeRuns(t, bin) })
}

// checkStatic holds that a program needs no other file to run.
func checkStatic(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || info.Mode()&fs.FileMode(0o111) == 0 {
		t.Fatalf("%s: %v, want a program", path, err)
	}
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, part := range program.Progs {
		if part.Type == elf.PT_INTERP {
			t.Errorf("%s is not static", path)
		}
	}
}
