package fairqueue

// rule is a bit set of scheduling rules. All are active in production; tests disable single rules
// to show their effect.
type rule int

const (
	keepPosition   rule = 1 << iota // a lane that moves to another meter keeps its position
	noOvertaking                    // no lane is granted before one with an earlier turn at one of its meters
	holding                         // permits of a slower meter are kept back while the lane waits for a faster one
	holdingBehind                   // permits are also kept back while the lane waits behind an older lane
	yielding                        // permits kept back for a lane are available to lanes with an earlier turn
	meeting                         // meters that get ready one after the other are held for a lane that needs all
	filling                         // a lane with as many granted jobs as its meters give at once is passed over
	passingOver                     // lanes of a queue that takes no jobs are passed over
	weighing                        // queues and fairness keys take turns by weight
	ranking                         // queues of a lower rank go first
	comingLast                      // a queue or key that becomes active starts behind those already waiting
	comingBack                      // a lane that was charged a turn at a meter goes first when it returns there
	holdingSeveral                  // at window meters, permits are kept back for several turns of a lane
	promoteAgain                    // a granted job that does not arrive is promoted again
)

// isDisabled reports whether a test has disabled a rule.
func (c *Core) isDisabled(r rule) bool { return c.off&r != 0 }
