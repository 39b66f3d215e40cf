package cron

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A field is one column of a cron line.
type field struct {
	name      string
	low, high int
	words     []string // the names of its values, from low on
	unit      string   // of the @every line that a user may mean by a step that is too large
}

var secondField = field{name: "second", high: 59, unit: "s"}

var lineFields = []field{
	{name: "minute", high: 59, unit: "m"},
	{name: "hour", high: 23, unit: "h"},
	{name: "day of month", low: 1, high: 31},
	{name: "month", low: 1, high: 12, words: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{name: "day of week", high: 6, words: strings.Fields("sun mon tue wed thu fri sat")},
}

// expandLine writes a line in the form that robfig/cron reads: 7 as Sunday and ranges that
// wrap around (fri-mon, 22-2) become lists of values. The hint says what is wrong with
// a line that robfig/cron would take for something else, or refuse without a reason.
func expandLine(line string, seconds bool) (expanded, hint string) {
	fields := lineFields
	if seconds {
		fields = append([]field{secondField}, fields...)
	}
	columns := strings.Fields(line)
	for i, f := range fields {
		var parts []string
		for part := range strings.SplitSeq(columns[i], ",") {
			part, hint := f.expand(part)
			if hint != "" {
				return "", hint
			}
			parts = append(parts, part)
		}
		columns[i] = strings.Join(parts, ",")
	}
	return strings.Join(columns, " "), ""
}

// expand writes one part of a list, such as 1-5 or */10, for robfig/cron. A part that
// it cannot read stays as it is, so that robfig/cron says why.
func (f field) expand(part string) (expanded, hint string) {
	span, stepText, stepped := strings.Cut(part, "/")
	step, err := strconv.Atoi(stepText)
	if stepped && (err != nil || step < 1) {
		return part, f.unsupported(part)
	}
	if span == "*" || span == "?" {
		return part, f.tooLarge(step, f.low, f.high)
	}
	fromText, toText, ranged := strings.Cut(span, "-")
	from, fromOK := f.value(fromText)
	to, toOK := f.value(toText)
	switch {
	case !fromOK, ranged && !toOK:
		return part, f.unsupported(part)
	case !ranged && stepped: // 5/15 is 5-59/15
		return part, f.tooLarge(step, from, f.high)
	case !ranged:
		return strconv.Itoa(f.wrap(from)), ""
	}
	if from > to {
		to += f.high - f.low + 1
	}
	values := make([]string, 0, to-from+1)
	for v := from; v <= to; v += max(step, 1) {
		values = append(values, strconv.Itoa(f.wrap(v)))
	}
	return strings.Join(values, ","), f.tooLarge(step, from, to)
}

// value reads a number or a name. A 7 is Sunday in the day of week.
func (f field) value(text string) (int, bool) {
	if i := slices.Index(f.words, strings.ToLower(text)); i >= 0 {
		return f.low + i, true
	}
	v, err := strconv.Atoi(text)
	high := f.high
	if f.name == "day of week" {
		high = 7
	}
	return v, err == nil && v >= f.low && v <= high
}

// wrap is v, or the value that follows the last one if v is beyond it.
func (f field) wrap(v int) int {
	if v > f.high {
		return v - (f.high - f.low + 1)
	}
	return v
}

// tooLarge says that a step is larger than what it divides. Such a part would match its
// first value alone: */90 minutes would be once an hour.
func (f field) tooLarge(step, from, to int) string {
	if step <= to-from || step == 1 {
		return ""
	}
	hint := fmt.Sprintf("has a step of %d in the %s, which is larger than %d-%d and would match %d alone: ",
		step, f.name, from, to, from)
	if f.unit == "" {
		return hint + "list the values"
	}
	return hint + fmt.Sprintf("for each %d%s use @every %d%s", step, f.unit, step, f.unit)
}

// unsupported explains the extensions of other schedulers, or is empty.
func (f field) unsupported(part string) string {
	for _, e := range extensions {
		if e.form.MatchString(part) {
			return e.hint
		}
	}
	return ""
}

// extensions are what some schedulers know beyond cron, and what to do without it.
var extensions = []struct {
	form *regexp.Regexp
	hint string
}{
	{
		regexp.MustCompile(`#`),
		"has #, which is not supported: tick on the days of the month on which that weekday can fall, such as 8-14 for the second, and check the weekday in the job",
	},
	{
		regexp.MustCompile(`^(?i)H([/(]|$)`),
		"has H, which is not supported: write a number, and use jitter to spread the jobs of several schedules",
	},
	{
		regexp.MustCompile(`^(?i)(\d+|L)W$`),
		"has W, which is not supported: tick on each day that it can be, and check in the job whether it is the working day",
	},
	{
		regexp.MustCompile(`^(?i)(L(-\d+)?|(\d|[A-Z]{3})L)$`),
		"has L, which is not supported: tick on each day that can be the last, such as 28-31, and check the date in the job",
	},
}
