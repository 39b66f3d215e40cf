package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// CompletionFlag is a flag that prints completion code. Its value is the shell. Users add one of these
// lines to the shell's startup file:
//
//	bash  source <(worker --completion bash)   in ~/.bashrc
//	zsh   source <(worker --completion zsh)    in ~/.zshrc, after compinit
//	fish  worker --completion fish | source    in ~/.config/fish/config.fish
type CompletionFlag string

// BeforeApply prints the code and ends the command. kong calls it.
func (CompletionFlag) BeforeApply(k *kong.Context, trace *kong.Path, stdio IO) error {
	shell, _ := k.FlagValue(trace.Flag).(CompletionFlag)
	code, ok := completions[string(shell)]
	if !ok {
		return Usagef("shell %q: want bash, zsh or fish", shell)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdio.Out, code, k.Model.Name, "'"+strings.ReplaceAll(program, "'", `'\''`)+"'")
	panic(exit(0))
}

// completions are the code for each shell. It calls the program with the typed line in COMP_LINE. Its
// arguments are the name of the command and the quoted path of its program.
var completions = map[string]string{
	"bash": "complete -o default -o bashdefault -C %[2]s %[1]s\n",
	"zsh":  "autoload -U +X bashcompinit && bashcompinit\ncomplete -o default -o bashdefault -C %[2]s %[1]s\n",
	"fish": `function __complete_%[1]s
    set -lx COMP_LINE (commandline -cp)
    test -z (commandline -ct)
    and set COMP_LINE "$COMP_LINE "
    %[2]s
end
complete -f -c %[1]s -a "(__complete_%[1]s)"
`,
}

// complete prints the candidates for the last word of a line, one on each line: flags if the word
// starts with "-", otherwise subcommands. If there is none, the shell completes file names.
func complete(parser *kong.Kong, line string, out io.Writer) {
	words := strings.Split(line, " ")
	last := words[len(words)-1]
	node := parser.Model.Node
	for _, word := range words[:len(words)-1] {
		if i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
			node = node.Children[i]
		}
	}
	var names []string
	for _, child := range node.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	for _, flag := range slices.Concat(node.AllFlags(true)...) {
		names = append(names, "--"+flag.Name)
	}
	for _, name := range names {
		if strings.HasPrefix(name, last) && strings.HasPrefix(name, "-") == strings.HasPrefix(last, "-") {
			fmt.Fprintln(out, name)
		}
	}
}
