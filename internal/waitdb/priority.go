package waitdb

// Priority orders the jobs of one lane. It is a head start and not a class of its
// own: a job of any priority gets its turn, however many High jobs come. Between lanes it means nothing.
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

// headStart is how many tickets later the job stands in its lane, of which the lowest
// goes first. Tickets are counted, one a job, so this is a number of jobs. What
// is no priority counts as Normal.
func (p Priority) headStart() int {
	switch p {
	case High:
		return -HeadStart
	case Low:
		return HeadStart
	}
	return 0
}
