// Package headgate_test checks rules of the whole repository.
package headgate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

// notOurs are folders of a checkout that are not in the repository.
var notOurs = []string{".git", ".cache", "bin", "node_modules"}

// files returns the repository's files that match, relative to its root.
func files(t *testing.T, match func(path string) bool) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(notOurs, entry.Name()):
			return fs.SkipDir
		case slices.Contains(notOurs, entry.Name()): // .git is a file in a worktree
			return nil
		case entry.Type().IsRegular() && match(path):
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("no file of the repository matches")
	}
	return found
}

func TestPackages_OneComment(t *testing.T) {
	sources := files(t, func(path string) bool {
		return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") &&
			!slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "testdata")
	})
	comments := map[string][]string{} // folder -> files with a package comment
	for _, path := range sources {
		mode := parser.PackageClauseOnly | parser.ParseComments
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, mode)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(path)
		if _, ok := comments[dir]; !ok {
			comments[dir] = nil
		}
		if file.Doc != nil {
			comments[dir] = append(comments[dir], path)
			checkPackageComment(t, path, file)
		}
	}
	for dir, paths := range comments {
		if len(paths) != 1 {
			t.Errorf("package %s has its comment in %q, want exactly one file", dir, paths)
		}
	}
}

// checkPackageComment checks the form of a package comment.
func checkPackageComment(t *testing.T, path string, file *ast.File) {
	t.Helper()
	want := "Package " + file.Name.Name + " "
	if file.Name.Name == "main" {
		want = "Command " + filepath.Base(filepath.Dir(path)) + " "
	}
	if doc := file.Doc.Text(); !strings.HasPrefix(doc, want) {
		t.Errorf("%s: the package comment is %.40q…, want it to start with %q", path, doc, want)
	}
}

// machinePath matches the home and work folders of authors. It is built from parts, so that this file
// does not match.
var machinePath = regexp.MustCompile(`(?:^|[^\w.])/(?:` +
	strings.Join([]string{"work", "root", "home", "Users"}, "|") + `)/`)

func TestFiles_NoMachinePaths(t *testing.T) {
	for _, path := range files(t, func(string) bool { return true }) {
		for i, line := range strings.Split(proctest.ReadFile(t, path), "\n") {
			if machinePath.MatchString(line) {
				t.Errorf("%s:%d names a path of one machine: %.100q", path, i+1, line)
			}
		}
	}
}

// TestCI_RunsMakeTest: CI runs what contributors run, and nothing else.
func TestCI_RunsMakeTest(t *testing.T) {
	const path = ".ci/run"
	stat, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if stat.Mode()&0o111 == 0 {
		t.Errorf("%s is not executable", path)
	}
	want := []string{
		"#!/usr/bin/env bash",
		"set -euo pipefail",
		`cd "$(dirname "$0")/.."`,
		"make test",
	}
	got := strings.Split(strings.TrimSpace(proctest.ReadFile(t, path)), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
