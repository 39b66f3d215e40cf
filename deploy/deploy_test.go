// Package deploy_test holds the image and docker-compose.yml to what they promise, without
// containers.
package deploy_test

import (
	"os"
	"testing"
)

// TestMain runs the tests in the root of the repository, as docker does.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	m.Run()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
