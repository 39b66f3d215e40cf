package expression

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Template is text with expressions, such as "report of ${tick.Year()}". $${ means a plain ${.
type Template struct {
	source string
	parts  []part
}

// part is either plain text or an expression.
type part struct {
	text       string
	expression *program
}

// ParseTemplate compiles a text with expressions.
func ParseTemplate(text string, allowedVars []string) (Template, error) {
	t := Template{source: text}
	for text != "" {
		before, rest, found := strings.Cut(text, "${")
		plain, escaped := strings.CutSuffix(before, "$")
		if escaped = escaped && found; escaped {
			before = plain + "${"
		}
		if last := len(t.parts) - 1; last >= 0 && t.parts[last].expression == nil {
			t.parts[last].text += before
		} else if before != "" {
			t.parts = append(t.parts, part{text: before})
		}
		if text = rest; !found || escaped {
			continue
		}
		end := closingBrace(rest)
		if end < 0 {
			return Template{}, fmt.Errorf("${%s has no closing }; write $${ for a plain ${", rest)
		}
		if reference := rest[:end]; strings.HasPrefix(reference, "env:") || strings.HasPrefix(reference, "file:") {
			return Template{}, fmt.Errorf("${%s} is an expression here: a payload refers to a secret by $${%[1]s}", reference)
		}
		p, err := compile("payload expression", rest[:end], allowedVars)
		if err != nil {
			return Template{}, err
		}
		t.parts = append(t.parts, part{expression: p})
		text = rest[end+1:]
	}
	return t, nil
}

// QuoteBare puts quotes around each ${…} in JSON that is not in a text, as in {"url": ${row.url}}.
func QuoteBare(text string) string {
	var quoted strings.Builder
	for inText := false; text != ""; {
		length, isBare := 1, false
		switch {
		case inText && text[0] == '\\':
			length = min(2, len(text))
		case text[0] == '"':
			inText = !inText
		case !inText && strings.HasPrefix(text, "${"):
			end := closingBrace(text[2:])
			if isBare = end >= 0; isBare {
				length = end + len("${}")
			}
		}
		piece := text[:length]
		text = text[length:]
		if isBare {
			inQuotes, _ := json.Marshal(piece) // a string has no error
			piece = string(inQuotes)
		}
		quoted.WriteString(piece)
	}
	return quoted.String()
}

// closingBrace returns the index of the } that ends an expression, or -1. It skips nested and quoted
// braces.
func closingBrace(text string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\' && quote != '`':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '{':
			depth++
		case c == '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

// Value returns the value of the expression if the template is one expression without text around.
// For any other template it returns the result of Text.
func (t Template) Value(from Source) (any, error) {
	if len(t.parts) == 1 && t.parts[0].expression != nil {
		return evaluate(t.parts[0].expression, from, notNil)
	}
	text, err := t.Text(from)
	if err != nil {
		return nil, err
	}
	return text, nil
}

// Text returns the value of the template as text.
func (t Template) Text(from Source) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		text := p.text
		if p.expression != nil {
			var err error
			if text, err = evaluate(p.expression, from, inline); err != nil {
				return "", err
			}
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// String returns the template as written.
func (t Template) String() string { return t.source }

// PlainTexts returns the text of each part. The text of an expression is empty.
func (t Template) PlainTexts() (texts []string) {
	for _, p := range t.parts {
		texts = append(texts, p.text)
	}
	return texts
}

// IsLiteral reports whether the template is text without expressions.
func (t Template) IsLiteral() bool {
	return !slices.ContainsFunc(t.parts, func(p part) bool { return p.expression != nil })
}

func (t Template) StartsWithExpression() bool {
	return len(t.parts) > 0 && t.parts[0].expression != nil
}

func notNil(value any) (any, error) {
	if value == nil {
		return nil, errors.New("its value is null, because the field is missing or null")
	}
	return value, nil
}

// inline formats a value within text. Times are RFC 3339.
func inline(value any) (string, error) {
	if _, err := notNil(value); err != nil {
		return "", err
	}
	switch v := value.(type) {
	case time.Time:
		return v.Format(time.RFC3339), nil
	case fmt.Stringer: // time.Month, time.Weekday, time.Duration
		return v.String(), nil
	case int64: // tick.Unix()
		return fmt.Sprint(v), nil
	}
	return scalar(value)
}
