package cli

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
)

// Worker and Enqueue are the names by which the user calls the commands: worker and enqueue after
// "go run", headgate-worker and headgate-enqueue after "make install". Process sets them.
var Worker, Enqueue = "worker", "enqueue"

// setNames sets Worker and Enqueue for a program that is one of them. If the program's name ends
// with the command's, the other command has the same prefix.
func setNames(command, program string) {
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	prefix, isPrefixed := strings.CutSuffix(name, command)
	switch {
	case isPrefixed:
		Worker, Enqueue = prefix+"worker", prefix+"enqueue"
	case command == "worker":
		Worker = name
	default:
		Enqueue = name
	}
}

// These match the name of a command in quotes, and in the examples of a help text.
var (
	workerCommand  = regexp.MustCompile(`(?m)("|^  |\| )worker([ "])`)
	enqueueCommand = regexp.MustCompile(`(?m)("|^  |\| )enqueue([ "])`)
)

// Named replaces the commands' names in a text, such as the hint `see "worker crawls"`, by those by
// which the user calls them.
func Named(text string) string {
	text = workerCommand.ReplaceAllString(text, "${1}"+Worker+"$2")
	return enqueueCommand.ReplaceAllString(text, "${1}"+Enqueue+"$2")
}

// nameHelp applies Named to all help texts of a command.
func nameHelp(parser *kong.Kong) error {
	return kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		switch n := node.(type) {
		case *kong.Application:
			n.Help, n.Detail = Named(n.Help), Named(n.Detail)
		case *kong.Node:
			n.Help, n.Detail = Named(n.Help), Named(n.Detail)
		case *kong.Value:
			n.Help = Named(n.Help)
		}
		return next(nil)
	})
}
