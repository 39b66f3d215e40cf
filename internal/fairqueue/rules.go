package fairqueue

// rule is a set of the rules by which turns are given. All of them hold; a test
// takes one out to see what it is good for.
type rule int

const (
	// keptKeys: a lane that moves keeps its key.
	keptKeys rule = 1 << iota
	// notPassing: no lane is called past an older one that waits at its meters.
	notPassing
	// holding: a slower meter is held while a faster one is waited for.
	holding
	// holdingBehind: also while an older lane waits there.
	holdingBehind
	// yielding: but not against an older lane.
	yielding
	// meeting: a lane that needs several meters has those that get ready one after
	// the other.
	meeting
	// filling: a lane of which as many are called as its meters give at once is
	// passed over.
	filling
	// passingOver: lanes of a queue that takes nothing are passed over.
	passingOver
	// weighing: queues and fairness keys take turns by weight.
	weighing
	// ranking: queues of a higher rank go first.
	ranking
	// comingLast: a queue or key that comes goes behind those that wait.
	comingLast
	// comingBack: a lane whose turn had come at a meter goes first where it comes back.
	comingBack
	// holdingSeveral: of permits that come all at once a lane holds as many as it had turns for.
	holdingSeveral
	// tellingAgain: a called job that does not come is told again.
	tellingAgain
)

// without reports whether a rule is taken out.
func (c *Core) without(r rule) bool { return c.off&r != 0 }
