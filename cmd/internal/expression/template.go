package expression

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Template is text with expressions in it: "report of ${tick.Year()}". Write
// $${ for a plain ${.
type Template struct {
	parts []part
}

// part is either plain text or a formula.
type part struct {
	text    string
	formula *formula
}

// ParseTemplate compiles the expressions of a text about such a source.
func ParseTemplate(text string, about Source) (Template, error) {
	var t Template
	for text != "" {
		before, rest, found := strings.Cut(text, "${")
		plain, escaped := strings.CutSuffix(before, "$")
		if escaped = escaped && found; escaped {
			before = plain + "${"
		}
		if last := len(t.parts) - 1; last >= 0 && t.parts[last].formula == nil {
			t.parts[last].text += before
		} else if before != "" {
			t.parts = append(t.parts, part{text: before})
		}
		if text = rest; !found || escaped {
			continue
		}
		end := closing(rest)
		if end < 0 {
			return Template{}, fmt.Errorf("${%s has no closing }; write $${ for a plain ${", rest)
		}
		f, err := compile("payload expression", rest[:end], about)
		if err != nil {
			return Template{}, err
		}
		t.parts = append(t.parts, part{formula: f})
		text = rest[end+1:]
	}
	return t, nil
}

// closing is where the } is that ends an expression, or -1: braces may nest,
// and those within quotes do not count.
func closing(text string) int {
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

// Of is the template's value for what it sees. A template that is one expression
// and nothing else gives that expression's own value, of any type; every
// other gives text.
func (t Template) Of(from Source) (any, error) {
	if len(t.parts) == 1 && t.parts[0].formula != nil {
		return answer(t.parts[0].formula, from, something)
	}
	text, err := t.Text(from)
	if err != nil {
		return nil, err
	}
	return text, nil
}

// Text is Of as text: also that of one expression and nothing else.
func (t Template) Text(from Source) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		text := p.text
		if p.formula != nil {
			var err error
			if text, err = answer(p.formula, from, inline); err != nil {
				return "", err
			}
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// Texts are the texts of the template around its expressions.
func (t Template) Texts() (texts []string) {
	for _, p := range t.parts {
		texts = append(texts, p.text)
	}
	return texts
}

// Literal is the text of a template without expressions.
func (t Template) Literal() (text string, ok bool) {
	for _, p := range t.parts {
		if p.formula != nil {
			return "", false
		}
		text += p.text
	}
	return text, true
}

// Leads reports whether the template begins with an expression.
func (t Template) Leads() bool { return len(t.parts) > 0 && t.parts[0].formula != nil }

// something is any value but nothing.
func something(value any) (any, error) {
	if value == nil {
		return nil, errors.New("it gives nothing")
	}
	return value, nil
}

// inline writes a value within text; times as RFC 3339.
func inline(value any) (string, error) {
	if _, err := something(value); err != nil {
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
