package waitdb

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fairqueue"
)

// Notification is a message to or from the leader. Redis may lose notifications. The leader notices
// a loss by a gap in the numbers of the lanes or of the changes.
type Notification struct {
	Kind   NotificationKind
	Number int64  // of the lane, or of the change; see JobArrived
	Name   string // of the meter, the limit, the lane, the process, or of queues, one a line
}

// NotificationKind is the kind of a notification, as the scripts write it.
type NotificationKind string

const (
	LaneAdded      NotificationKind = "lane"         // a lane has its first job
	MeterChanged   NotificationKind = "meter"        // a meter may have free permits earlier than last reported
	LimitChanged   NotificationKind = "limit"        // all meters of a limit may have free permits earlier
	JobArrived     NotificationKind = "arrived"      // a granted job has called Acquire: it was late, and Number is 1, or its lane had the most grants possible
	Reconnected    NotificationKind = ""             // not sent by Redis: the subscription was made, or made again; notifications may have been lost
	WeightsChanged NotificationKind = "weights"      // a server has stored the weights of its queues
	DeadlineAdded  NotificationKind = "deadline"     // a job with an earlier wait deadline than all others was added
	SlotsRequested NotificationKind = "slots_wanted" // the leader asks the servers of some queues for their free slots
	SlotsReported  NotificationKind = "slots_free"   // a server has free slots for its queues
	SteppedDown    NotificationKind = "stepped_down" // a process has given the lease back; Name has the process, and its successor if it names one
	DrainChanged   NotificationKind = "drained"      // an operator drains processes, or ends that
	LeadRequested  NotificationKind = "lead_wanted"  // the process Name, which leads Number other scopes, asks for the lease
)

// NeedsLeader reports whether a turn may be due after the notification. The script that sends it
// cuts a long lease of the leader: see lua/include/wake_leader.lua.
func (k NotificationKind) NeedsLeader() bool {
	return slices.Contains([]NotificationKind{LaneAdded, MeterChanged, LimitChanged, JobArrived, DeadlineAdded}, k)
}

// maxPending is the most notifications that wait in the channel for the receiver. If the channel is
// full and the receiver takes none for a minute, notifications are lost.
const maxPending = 1000

// Notifications returns a channel of notifications until the context ends.
func (db *DB) Notifications(ctx context.Context) <-chan Notification {
	notifications := make(chan Notification)
	subscription := db.rdb.Subscribe(ctx, db.prefix+"wake")
	messages := subscription.ChannelWithSubscriptions(redis.WithChannelSize(maxPending))
	context.AfterFunc(ctx, func() { _ = subscription.Close() }) // closes messages, too
	go func() {
		defer close(notifications)
		for message := range messages {
			select {
			case <-ctx.Done():
			case notifications <- parseNotification(message):
			}
		}
	}()
	return notifications
}

func parseNotification(message any) (n Notification) {
	if m, ok := message.(*redis.Message); ok {
		parts := append(strings.SplitN(m.Payload, " ", 3), "", "")
		n.Kind, n.Name = NotificationKind(parts[0]), parts[2]
		n.Number, _ = strconv.ParseInt(parts[1], 10, 64)
	}
	return n
}

// NotifyDrained asks the processes to look whether an operator drains them.
func (db *DB) NotifyDrained(ctx context.Context) error {
	return db.notify(ctx, Notification{Kind: DrainChanged})
}

// RequestSlots asks the servers of some queues for their free worker slots.
func (db *DB) RequestSlots(ctx context.Context, queues []string) error {
	return db.notify(ctx, Notification{SlotsRequested, 0, strings.Join(queues, "\n")})
}

func (db *DB) notify(ctx context.Context, n Notification) error {
	return db.rdb.Publish(ctx, db.prefix+"wake", fmt.Sprintf("%s %d %s", n.Kind, n.Number, n.Name)).Err()
}

// ReportSlots publishes the number of free slots that a server has for its queues. interval is the
// average time until one more slot becomes free.
func (db *DB) ReportSlots(ctx context.Context, server string, free int, interval time.Duration, queues []string, arrived []int64) error {
	name := fmt.Sprintf("%s\n%d", server, interval.Microseconds())
	for i, queue := range queues {
		name += fmt.Sprintf("\n%d %s", arrived[i], queue)
	}
	return db.notify(ctx, Notification{SlotsReported, int64(free), name})
}

// Slots decodes the fields of a SlotsReported notification. The number of free slots is in Number.
func (n Notification) Slots() (server string, report fairqueue.SlotReport) {
	lines := strings.Split(n.Name, "\n")
	if len(lines) < 3 {
		return "", report
	}
	report.Free = int(n.Number)
	report.Interval, _ = strconv.ParseInt(lines[1], 10, 64)
	for _, line := range lines[2:] {
		number, queue, _ := strings.Cut(line, " ")
		arrived, _ := strconv.ParseInt(number, 10, 64)
		report.Queues, report.Arrived = append(report.Queues, queue), append(report.Arrived, arrived)
	}
	return lines[0], report
}
