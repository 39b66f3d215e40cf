package throttle

// Priority orders the jobs of one lane.
type Priority int

// The priorities. A job goes before those of the next lower priority that joined
// its lane up to HeadStart jobs earlier, and no further: so a Low job is overtaken
// by at most 2·HeadStart jobs that came after it.
const (
	Normal Priority = iota
	High
	Low
)

// HeadStart is how many places in a lane one step of priority is worth.
const HeadStart = 1000

func (p Priority) headStart() int {
	switch p {
	case High:
		return -HeadStart
	case Low:
		return HeadStart
	}
	return 0
}
