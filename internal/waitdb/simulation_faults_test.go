package waitdb_test

import (
	"pgregory.net/rapid"
)

// edit removes a waiting job's record, or its entry in its lane, by hand.
func (y *simulation) edit(t *rapid.T) {
	if !y.clumsy {
		t.Skip("no fault")
	}
	j := y.any(t, "waiting", waiting)
	y.edited, j.known = true, false
	if rapid.Bool().Draw(t, "the record") {
		y.rdb.HDel(background, hg("jobs"), j.Queue+"\n"+j.ID)
	} else {
		y.rdb.ZRem(background, hg("lane:"+j.lane()), j.ID)
	}
}

// flush loses all of the scope's data; the limits are defined again.
func (y *simulation) flush(t *rapid.T) {
	if !y.clumsy || rapid.IntRange(0, 5).Draw(t, "flush") > 0 {
		t.Skip("no fault")
	}
	y.judge(t)
	y.rdb.Del(background, y.rdb.Keys(background, hg("*")).Val()...)
	for _, j := range y.in(func(j *simJob) bool { return !running(j) }) {
		j.state, j.known, j.promoted, j.late = "waiting", false, false, false
	}
	clear(y.histories)
	for _, j := range y.in(running) {
		clear(j.held)
	}
	for _, l := range y.limits {
		y.define(t, l)
	}
}
