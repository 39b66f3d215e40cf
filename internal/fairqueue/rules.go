package fairqueue

// rule is a bit set of scheduling rules. All are active in production; tests disable single rules
// to show their effect.
type rule int

const (
	keepPosition   rule = 1 << iota // a lane that moves to another meter keeps its position
	noOvertaking                    // no lane is granted before one with an earlier turn at one of its meters
	holding                         // a lane that waits for a faster meter keeps permits of its slower meter
	holdingBehind                   // permits are also kept back while the lane waits behind one with an earlier turn
	yielding                        // permits kept back for a lane are available to lanes with an earlier turn
	meeting                         // if a lane's meters are ready at different times, permits of the first are kept until all are ready
	filling                         // a lane is passed over if it has as many granted jobs as its meters can give at once
	passingOver                     // lanes of a queue that takes no jobs are passed over
	weighing                        // queues and fairness keys take turns by weight
	ranking                         // queues of a lower rank go first
	comingLast                      // a queue or key that becomes active starts behind those already waiting
	comingBack                      // a lane that moves back to a meter where it used its turn without a grant goes first
	holdingSeveral                  // at window meters, permits are kept back for several turns of a lane
	promoteAgain                    // a granted job that does not arrive is promoted again
)

// isDisabled reports whether a test has disabled a rule.
func (c *Core) isDisabled(r rule) bool { return c.off&r != 0 }
