package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/cmd/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"enqueue": main})
}

func TestScripts(t *testing.T) { clitest.Run(t, execute, "../worker") }
