package expression

import (
	"encoding/json"
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

// part is either plain text or a formula. Text that is whole is a ${…} that stands in
// the template as $${…}: what reads the template's value may take it for a name.
type part struct {
	text    string
	formula *formula
	whole   bool
}

// Quote writes a text so that nothing in it is taken for a name. Nil leaves it as it is.
type Quote func(text string) string

// ParseTemplate compiles the expressions of a text about such a source.
func ParseTemplate(text string, about Source) (Template, error) {
	var t Template
	for text != "" {
		before, rest, found := strings.Cut(text, "${")
		if plain, escaped := strings.CutSuffix(before, "$"); found && escaped {
			t.parts = append(t.parts, part{text: plain})
			name := part{text: "${"}
			if end := strings.IndexAny(rest, "{}"); end >= 0 && rest[end] == '}' {
				name.text, name.whole = "${"+rest[:end+1], true
				rest = rest[end+1:]
			}
			t.parts = append(t.parts, name)
			text = rest
			continue
		}
		if before != "" {
			t.parts = append(t.parts, part{text: before})
		}
		if !found {
			break
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
// other gives text. The value is quoted but for the ${…} that the template itself has. What
// stands between two of these is quoted at once: pieces of it could make a name together.
func (t Template) Of(from Source, quote Quote) (any, error) {
	if len(t.parts) == 1 && t.parts[0].formula != nil {
		value, err := answer(t.parts[0].formula, from, something)
		if err != nil {
			return nil, err
		}
		return quote.In(value)
	}
	text, err := t.Text(from, quote)
	if err != nil {
		return nil, err
	}
	return text, nil
}

// Text is Of as text: also that of one expression and nothing else.
func (t Template) Text(from Source, quote Quote) (string, error) {
	var b strings.Builder
	between := ""
	for _, p := range t.parts {
		text := p.text
		if p.formula != nil {
			var err error
			if text, err = answer(p.formula, from, inline); err != nil {
				return "", err
			}
		}
		if p.whole {
			b.WriteString(quote.of(between) + text)
			between = ""
		} else {
			between += text
		}
	}
	return b.String() + quote.of(between), nil
}

func (q Quote) of(text string) string {
	if q == nil {
		return text
	}
	return q(text)
}

// In is a value with all texts in it quoted. The value itself does not change: one that
// is no text is what its JSON says afterwards.
func (q Quote) In(value any) (any, error) {
	if q == nil {
		return value, nil
	}
	if text, ok := value.(string); ok {
		return q(text), nil
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	value, err = decode("value", text)
	return each(value, func(inner any) any {
		if text, ok := inner.(string); ok {
			return q(text)
		}
		return inner
	}), err
}

// Between are the texts of the template around its expressions and whole ${…}.
func (t Template) Between() []string {
	texts := []string{""}
	for _, p := range t.parts {
		if p.formula != nil || p.whole {
			texts = append(texts, "")
			continue
		}
		texts[len(texts)-1] += p.text
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
