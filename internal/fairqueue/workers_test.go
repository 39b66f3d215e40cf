package fairqueue

import (
	"fmt"
	"testing"
)

// busyQueue gives a core with two lanes that share a meter, and the time. The granted job of one
// queue has not arrived in time.
func busyQueue() (c *Core, now int64) {
	c = New()
	c.AddLane("busy\napi|", 1)
	c.AddLane("free\napi|", 2)
	turnsOf(c, 1, granted("1", 1, api(second/8)))
	now = 1 + grantLife
	c.Expired(now, "busy\napi|", 1, []string{"1"}, true)
	return c, now
}

// report is a report of a server of the queue "busy".
func report(free int, interval, arrived int64) SlotReport {
	return SlotReport{Free: free, Interval: interval, Queues: []string{"busy"}, Arrived: []int64{arrived}}
}

// turnsAt gives turns at a time, and each is granted.
func turnsAt(c *Core, now int64, most int) (queues []string) {
	for range most {
		turns := c.Turns(now, 1)
		var results []Result
		for _, t := range turns {
			results = append(results, granted(fmt.Sprint(now), now, api(0)))
			results[0].Granted = c.lanes[t.Lane].granted + 1
			queues = append(queues, c.lanes[t.Lane].queue.name)
		}
		c.ApplyResults(now, results)
	}
	return queues
}

// A queue whose workers are busy gets no permits: not when one of its jobs arrives late, and
// then one for each slot that becomes free.
func TestSlots_OnePermitForEach(t *testing.T) {
	c, now := busyQueue()
	same(t, "queues whose servers are asked", c.QueuesToReport(now), "busy")
	c.SetSlots(now, "server", report(0, second, 0))
	c.Expired(now, "busy\napi|", 0, nil, true) // it has arrived late
	same(t, "without a free slot", turnsAt(c, now, 3), "free", "free", "free")
	c.SetSlots(now, "server", report(2, second, 1))
	same(t, "for two free slots", turnsAt(c, now, 6), "busy", "free", "busy", "free", "free", "free")
	c.SetSlots(now, "server", report(2, second, 1)) // reported before the two arrived
	same(t, "while both are on their way", turnsAt(c, now, 2), "free", "free")
	c.Expired(now, "busy\napi|", 0, nil, true)
	same(t, "when both have arrived, and the report is from before", turnsAt(c, now, 2), "free", "free")
	c.SetSlots(now, "server", report(1, second, 3))
	same(t, "when they have arrived and one slot is free again", turnsAt(c, now, 3), "busy", "free", "free")
}

// What was reported of slots counts for three seconds: the server may have died.
func TestSlots_OldReport_Ignored(t *testing.T) {
	c, now := busyQueue()
	c.SetSlots(now, "server", report(0, second, 0))
	c.Expired(now, "busy\napi|", 0, nil, true)
	same(t, "while it counts", turnsAt(c, now, 1), "free")
	if next := c.Next(now + 1); next > now+reportLife {
		t.Errorf("the queue is looked at again at %d, want %d", next, now+reportLife)
	}
	same(t, "later", turnsAt(c, now+reportLife, 2), "busy", "free")
}

// A lane that other jobs leave no slot has a turn all the same, so seldom that its permits
// idle for a fiftieth of the time.
func TestSlots_NoneFree_TurnAtTimes(t *testing.T) {
	c, now := busyQueue()
	turns := 0
	for end := now + 1000*second; now < end; now += second / 10 {
		if now%second < second/10 {
			c.SetSlots(now, "server", report(0, second/5, 0))
			c.Expired(now, "busy\napi|", 0, nil, true)
		}
		for _, queue := range turnsAt(c, now, 1) {
			if queue == "busy" {
				turns++
			}
		}
	}
	if turns < 90 || turns > 101 {
		t.Errorf("%d turns, want one each 50 times 200 ms", turns)
	}
}

// A queue whose meters no other queue needs gets permits in advance: its workers lose no time.
func TestSlots_QueueAlone_NotLimited(t *testing.T) {
	c := New()
	c.AddLane("busy\napi|", 1)
	turnsOf(c, 1, granted("1", 1, api(second/8)))
	now := int64(1 + grantLife)
	c.Expired(now, "busy\napi|", 1, []string{"1"}, true)
	same(t, "queues whose servers are asked", c.QueuesToReport(now))
	c.SetSlots(now, "server", report(0, second, 0))
	c.Expired(now, "busy\napi|", 0, nil, true)
	same(t, "turns", turnsAt(c, now, 2), "busy", "busy")
}

// Two queues share the slots of one server.
func TestSlots_SharedByQueues(t *testing.T) {
	c, now := busyQueue()
	c.SetSlots(now, "shared", SlotReport{1, second, []string{"busy", "other"}, []int64{0, 0}})
	c.Expired(now, "busy\napi|", 0, nil, true)
	c.queue("other").slotsInFlight = 1
	if c.queue("busy").hasFreeSlot(now) {
		t.Error("the slot that a job of the other queue will take is free")
	}
}

// A report that does not have the queues of its server changes nothing.
func TestSlots_OtherQueues_Ignored(t *testing.T) {
	c, now := busyQueue()
	c.SetSlots(now, "server", SlotReport{Free: 0, Interval: second, Queues: []string{"busy", "other"}, Arrived: []int64{0, 0}})
	c.Expired(now, "busy\napi|", 0, nil, true)
	c.SetSlots(now, "server", report(5, second, 0))
	c.SetSlots(now, "server", SlotReport{Free: 5, Queues: []string{"busy", "other"}})
	same(t, "without a free slot", turnsAt(c, now, 3), "free", "free", "free")
}
