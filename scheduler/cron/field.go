package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	robfig "github.com/robfig/cron/v3"
)

// field is one column of a cron line.
type field struct {
	name      string
	low, high int
	words     []string // names of the values, from low on
	unit      string   // for the hint to use @every instead of a step that is too large
}

var lineFields = []field{
	{name: "second", high: 59, unit: "s"},
	{name: "minute", high: 59, unit: "m"},
	{name: "hour", high: 23, unit: "h"},
	{name: "day of month", low: 1, high: 31},
	{name: "month", low: 1, high: 12, words: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{name: "day of week", high: 6, words: strings.Fields("sun mon tue wed thu fri sat")},
}

// starBit tells robfig/cron that a field is *. If neither the day of month nor the day of week is
// *, a day matches if one of them does.
const starBit = 1 << 63

// readLine parses a cron line of six fields, or returns a hint what is wrong with the line.
// robfig/cron's own parser has no ranges that wrap around and no 7 for Sunday.
func readLine(line string) (s *robfig.SpecSchedule, hint string) {
	bits := make([]uint64, len(lineFields))
	for i, column := range strings.Fields(line) {
		for part := range strings.SplitSeq(column, ",") {
			of, hint := lineFields[i].bits(part)
			if hint != "" {
				return nil, hint
			}
			bits[i] |= of
		}
	}
	return &robfig.SpecSchedule{
		Second: bits[0], Minute: bits[1], Hour: bits[2], Dom: bits[3], Month: bits[4], Dow: bits[5], Location: time.UTC,
	}, ""
}

// bits returns a bit for each value of one part of a list, such as 1-5, fri-mon or */10.
func (f field) bits(part string) (bits uint64, hint string) {
	span, stepText, stepped := strings.Cut(part, "/")
	step, err := strconv.Atoi(stepText)
	if !stepped {
		step, err = 1, nil
	}
	fromText, toText, ranged := strings.Cut(span, "-")
	from, fromOK := f.value(fromText)
	to, toOK := f.value(toText)
	switch {
	case span == "*" || span == "?":
		from, to, fromOK = f.low, f.high, true
		if step == 1 {
			bits = starBit
		}
	case !ranged && stepped: // 5/15 is 5-59/15
		to = f.high
	case !ranged:
		to = from
	case from > to:
		to += f.high - f.low + 1
	}
	if !fromOK || ranged && !toOK || err != nil || step < 1 {
		return 0, f.syntaxHint(part)
	}
	if step > 1 && step > to-from {
		return 0, f.stepHint(step, from, to)
	}
	for v := from; v <= to; v += step {
		bits |= 1 << (f.low + (v-f.low)%(f.high-f.low+1)) // as a day of week, 7 becomes 0
	}
	return bits, ""
}

// value parses a number or a name. As a day of week, 7 is Sunday.
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

// stepHint is the hint for a step that is larger than its range. Only the first value would match,
// so */90 minutes would be once an hour.
func (f field) stepHint(step, from, to int) string {
	instead := "list the values"
	if f.unit != "" {
		instead = fmt.Sprintf("for each %d%s use @every %d%s", step, f.unit, step, f.unit)
	}
	return fmt.Sprintf("has a step of %d in the %s, which is larger than %d-%d and would match %d alone: %s", step, f.name, from, to, from, instead)
}

// syntaxHint is the hint for a part that cannot be parsed.
func (f field) syntaxHint(part string) string {
	names := ""
	if f.words != nil {
		names = " or names such as " + f.words[0]
	}
	return fmt.Sprintf("has %q in the %s: want * or numbers from %d to %d%s, as a list or range, with /step for each step-th", part, f.name, f.low, f.high, names)
}
