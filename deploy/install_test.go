package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// makeTarget runs make with a target and variables, and returns its output.
func makeTarget(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func output(t *testing.T, command string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

func TestInstall(t *testing.T) {
	prefix, out := t.TempDir(), t.TempDir()
	text := makeTarget(t, nil, "install", "PREFIX="+prefix, "OUT="+out, "VERSION=v0.1.0-7-gabc")
	bin := filepath.Join(prefix, "bin")
	if !strings.Contains(text, "in "+bin) || !strings.Contains(text, bin+" is not in your PATH") {
		t.Errorf("make install prints:\n%s", text)
	}
	for _, name := range []string{"headgate-worker", "headgate-enqueue"} {
		command := filepath.Join(bin, name)
		if version := output(t, command, "--version"); !strings.HasPrefix(version, "v0.1.0-7-gabc, go") {
			t.Errorf("%s --version prints %s", name, version)
		}
		help := output(t, command, "--help")
		if !strings.HasPrefix(help, "Usage: "+name+" ") || strings.Contains(help, `"worker `) || strings.Contains(help, `"enqueue `) {
			t.Errorf("the help of %s has another name:\n%s", name, help)
		}
	}
}

// TestVersion holds that a clone's version says the commit. Other copies of the sources have no version.
func TestVersion(t *testing.T) {
	commit, _ := exec.CommandContext(t.Context(), "git", "--git-dir=.git", "describe", "--tags", "--always", "--dirty").Output()
	want := "version.linked=" + strings.TrimSpace(string(commit)) + "\""
	if text := makeTarget(t, nil, "-n", "build"); !strings.Contains(text, want) {
		t.Errorf("make build runs\n%s\nwant %s", text, want)
	}
}

func TestRelease(t *testing.T) {
	if database := makeTarget(t, nil, "-np", "help"); !strings.Contains(database, "PLATFORMS = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64\n") {
		t.Error("make release builds for other platforms than Linux and macOS on both processors")
	}
	dist := t.TempDir()
	platform := runtime.GOOS + "/" + runtime.GOARCH
	makeTarget(t, nil, "release", "PLATFORMS="+platform, "VERSION=v0.1.0", "DIST="+dist)
	name := "headgate-v0.1.0-" + runtime.GOOS + "-" + runtime.GOARCH
	files := output(t, "tar", "-tzf", filepath.Join(dist, name+".tar.gz"))
	for _, file := range []string{"headgate-worker", "headgate-enqueue", "LICENSE", "README.md", "docs/operating.md", "deploy/headgate.service"} {
		if !strings.Contains(files, name+"/"+file+"\n") {
			t.Errorf("the archive has no %s:\n%s", file, files)
		}
	}
	if sums := read(t, filepath.Join(dist, "SHA256SUMS")); !strings.HasSuffix(sums, "  "+name+".tar.gz\n") {
		t.Errorf("SHA256SUMS has %q", sums)
	}
}

// TestMakeImage runs make image with a program that takes docker's place.
func TestMakeImage(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte("#!/bin/sh\necho docker \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := makeTarget(t, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, "image", "VERSION=v0.1.0")
	for _, want := range []string{"docker build --build-arg VERSION=v0.1.0 -t headgate:v0.1.0 -t headgate:latest .", "built the image headgate:v0.1.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("make image prints no %q:\n%s", want, text)
		}
	}
}
