package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
)

// CompletionFlag prints the completion code of a shell. Its value is the shell. The code belongs into the
// shell's startup file:
//
//	bash  source <(worker --completion bash)   in ~/.bashrc
//	zsh   source <(worker --completion zsh)    in ~/.zshrc, after compinit
//	fish  worker --completion fish | source    in ~/.config/fish/config.fish
type CompletionFlag string

// BeforeApply prints the code and ends the command. kong calls it.
func (CompletionFlag) BeforeApply(k *kong.Context, trace *kong.Path, stdio IO) error {
	shell, _ := k.FlagValue(trace.Flag).(CompletionFlag)
	if err := printCompletion(stdio.Out, k.Model.Name, string(shell)); err != nil {
		return err
	}
	panic(exit(0))
}

// completions have the name of the command and the path of its program.
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

// printCompletion prints code that lets the shell call this program with COMP_LINE.
func printCompletion(out io.Writer, name, shell string) error {
	code, ok := completions[shell]
	if !ok {
		return Usagef("shell %q: want bash, zsh or fish", shell)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if program, err = filepath.Abs(program); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, code, name, "'"+strings.ReplaceAll(program, "'", `'\''`)+"'")
	return err
}

// complete prints the candidates for the last word of COMP_LINE, one per line: commands, flags and
// values. Without a candidate the shell completes files.
func complete(parser *kong.Kong, line string, out io.Writer) {
	words := strings.Fields(line)
	last := ""
	if len(words) > 1 && !strings.HasSuffix(line, " ") {
		last, words = words[len(words)-1], words[:len(words)-1]
	}
	node := parser.Model.Node
	for _, word := range words[min(1, len(words)):] {
		for _, child := range node.Children {
			if child.Name == word {
				node = child
			}
		}
	}
	for _, candidate := range candidates(node, strings.HasPrefix(last, "-")) {
		if strings.HasPrefix(candidate, last) {
			fmt.Fprintln(out, candidate)
		}
	}
}

// candidates returns the flags of a command, or its subcommands and values.
func candidates(node *kong.Node, flags bool) (names []string) {
	if flags {
		for _, group := range node.AllFlags(true) {
			for _, flag := range group {
				names = append(names, "--"+flag.Name)
			}
		}
		return names
	}
	for _, child := range node.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	for _, positional := range node.Positional {
		if positional.Enum != "" {
			names = append(names, positional.EnumSlice()...)
		}
	}
	return names
}
