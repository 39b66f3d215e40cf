package fairqueue

// rule is a set of rules by which turns are given. All of them hold; a test takes one out to show
// what it is good for.
type rule int

const (
	keptKeys       rule = 1 << iota // a lane that moves to another meter keeps its key
	notPassing                      // no lane is granted past an older one that waits at its meters
	holding                         // a slower meter is held while a faster one is waited for
	holdingBehind                   // also while an older lane waits there
	yielding                        // but not against an older lane
	meeting                         // meters that get ready one after the other are held for a lane that needs all
	filling                         // a lane with as many granted jobs as its meters give at once is passed over
	passingOver                     // lanes of a queue that takes no jobs are passed over
	weighing                        // queues and fairness keys take turns by weight
	ranking                         // queues of a higher rank go first
	comingLast                      // a queue or key that comes goes behind those that wait
	comingBack                      // a lane whose turn had come at a meter goes first when it comes back
	holdingSeveral                  // of permits that come all at once a lane holds as many as it had turns for
	tellingAgain                    // a granted job that does not come is promoted again
)

// without reports whether a rule is taken out.
func (c *Core) without(r rule) bool { return c.off&r != 0 }
