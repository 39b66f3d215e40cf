package throttle

import (
	"context"
	"strings"
	"time"

	"github.com/headgate/headgate/lua"
)

// Place is where a waiting job stands.
type Place struct {
	// Called is whether its turn has come and it is on its way.
	Called bool
	// Position in its lane counts from 1; Waiting is the lane's length.
	Position, Waiting int
	// Lane lists the meters, limit|key, that the lane's jobs need.
	Lane []string
	// Binding is the meter, limit|key, that it waits longest for.
	Binding string
	// Since is when it was denied first, by Redis's clock, and For is how long
	// ago that was.
	Since time.Time
	For   time.Duration
	// Expected is when it would run, by Redis's clock, if nothing changes, and
	// In is how far off that is. They mean nothing unless Known: nobody knows
	// when a running job gives its slot back, or a paused limit goes on.
	Expected time.Time
	In       time.Duration
	Known    bool
}

// PutBack is for how long the job should be put back now in case that nobody
// calls it: a little longer than it waits. Where nobody knows how long that is,
// it is a minute, and then as long as it has waited.
func (p Place) PutBack() time.Duration {
	if p.Known {
		return p.In + p.In/10 + 5*time.Second
	}
	return min(max(p.For, time.Minute), time.Hour)
}

// Waiting says where a job stands, and false if it does not wait.
func (l *Lanes) Waiting(ctx context.Context, job JobID) (Place, bool, error) {
	reply, err := l.run(ctx, lua.Waiting, job.Queue, job.ID).Slice()
	if err != nil {
		return Place{}, false, unavailable(err)
	}
	if len(reply) == 0 {
		return Place{}, false, nil
	}
	number := func(i int) int64 { return reply[i].(int64) }
	_, meters, _ := strings.Cut(reply[6].(string), "\n")
	return Place{
		Called:   number(0) == 1,
		Position: int(number(1)),
		Waiting:  int(number(2)),
		Expected: time.UnixMicro(number(3)),
		In:       microseconds(number(3) - number(4)),
		Binding:  reply[5].(string),
		Lane:     strings.Split(meters, "\n"),
		Known:    number(7) == 1,
		Since:    time.UnixMicro(number(8)),
		For:      microseconds(number(4) - number(8)),
	}, true, nil
}
