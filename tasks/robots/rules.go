package robots

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// rules are those of a group, as a URL is looked up in them: most have no wildcard, and
// are found by the beginnings of the URL, however many there are.
type rules struct {
	plain   map[string]bool // by path, whether it is allowed; open at the end
	whole   map[string]bool // the same for those with $ at the end
	lengths []int           // of the paths in plain, the longest first
	wild    []rule          // with a *, the longest first
}

func (s *rules) add(r rule) {
	before, _, wild := strings.Cut(r.path, "*")
	switch {
	case wild && len(s.wild) < MaxWildcards:
		s.wild = append(s.wild, r)
		return
	case wild && r.allow:
		return
	case wild:
		r.path, r.end = before, false
	}
	to := &s.plain
	if r.end {
		to = &s.whole
	}
	if *to == nil {
		*to = map[string]bool{}
	}
	(*to)[r.path] = (*to)[r.path] || r.allow
}

// order makes the rules ready, after the last was added.
func (s *rules) order() {
	lengths := map[int]bool{}
	for path := range s.plain {
		lengths[len(path)] = true
	}
	s.lengths = slices.SortedFunc(maps.Keys(lengths), func(a, b int) int { return cmp.Compare(b, a) })
	slices.SortStableFunc(s.wild, func(a, b rule) int { return cmp.Compare(len(b.path), len(a.path)) })
}

// allow reports whether a canonical target is allowed: by the longest rule that matches,
// and of several as long by one that allows.
func (s *rules) allow(target string) bool {
	allowed, longest := true, -1
	take := func(length int, allow bool) {
		if length > longest || length == longest && allow {
			allowed, longest = allow, length
		}
	}
	if allow, ok := s.whole[target]; ok {
		take(len(target), allow)
	}
	for _, n := range s.lengths {
		if n > len(target) {
			continue
		}
		if allow, ok := s.plain[target[:n]]; ok {
			take(n, allow)
			break
		}
	}
	for _, r := range s.wild {
		if len(r.path) < longest {
			break
		}
		if (len(r.path) > longest || r.allow) && r.matches(target) {
			take(len(r.path), r.allow)
		}
	}
	return allowed
}
