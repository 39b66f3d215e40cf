package strictjson

import "fmt"

// MaxDepth is the maximum number of levels of JSON that users write or that an upstream answers.
const MaxDepth = 100

// CheckDepth returns an error if a JSON text is nested more than MaxDepth levels deep. The parameter
// what names the text in the error, such as "payload".
func CheckDepth(what string, text []byte) error {
	if at := DeeperThan(MaxDepth, text); at >= 0 {
		return fmt.Errorf("%s is nested more than %d levels deep, at byte %d: want at most %d", what, MaxDepth, at+1, MaxDepth)
	}
	return nil
}

// DeeperThan returns the index of the first bracket of a JSON text that opens more than most levels,
// or -1.
func DeeperThan(most int, text []byte) int {
	level, inText := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '[' || c == '{':
			if level++; level > most {
				return i
			}
		case c == ']' || c == '}':
			level--
		}
	}
	return -1
}
