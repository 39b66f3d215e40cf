package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/headgate/headgate/cmd/internal/config"
)

// documents are the pages of the root and of docs.
func documents(t *testing.T) []string {
	t.Helper()
	root, _ := filepath.Glob("../../../*.md")
	docs, _ := filepath.Glob("../../../docs/*.md")
	return slices.Concat(root, docs)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// A worker accepts the configs that the documents show.
func TestDocs_YAML_Loads(t *testing.T) {
	blocks := 0
	for _, path := range documents(t) {
		for _, match := range yamlBlock.FindAllStringSubmatch(read(t, path), -1) {
			blocks++
			if _, err := config.Parse(path, []byte(match[1])); err != nil {
				t.Errorf("%s, in the YAML that begins with %.60q: %v", path, match[1], err)
			}
		}
	}
	if blocks < 3 {
		t.Errorf("%d blocks of YAML, want those of README.md at least", blocks)
	}
}
