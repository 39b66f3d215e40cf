package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/cmd/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"worker": main})
}

func TestScripts(t *testing.T) { clitest.Run(t, command, "../enqueue") }

var command = clitest.Command(execute)
