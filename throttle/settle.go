package throttle

import "time"

// taken is what the scripts say of each need: until when a funnel owes, or 0.
func taken(owed []int64, needs []Need) []Taken {
	var all []Taken
	for i, us := range owed {
		if needs[i].Cost == 0 {
			continue
		}
		t := Taken{Need: needs[i]}
		if us > 0 {
			t.OwedUntil = time.UnixMicro(us)
		}
		all = append(all, t)
	}
	return all
}

// newTaken is what was just taken of a meter in process.
func newTaken(need Need, m meter) Taken {
	t := Taken{Need: need}
	if g, ok := m.(*gcra); ok {
		t.OwedUntil = time.UnixMicro(min(g.tat, far))
	}
	return t
}
