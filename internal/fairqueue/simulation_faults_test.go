package fairqueue

// stop pauses a queue, resume lets it take again.
func (w *simulation) stop(queue string) {
	w.queues[queue].stopped = true
	w.history.Note(w.now, "", "queue %s stops", queue)
	w.excuse(queue, true)
}

func (w *simulation) resume(queue string) {
	q := w.queues[queue]
	q.stopped, q.resumed = false, w.now
	w.history.Note(w.now, "", "queue %s takes again", queue)
	w.at(w.now+1_500_000, func() {
		if !q.stopped {
			w.excuse(queue, false)
		}
	})
	for _, arrive := range q.pending {
		arrive()
	}
	q.pending = nil
}

func (w *simulation) excuse(queue string, excused bool) {
	for _, l := range w.lanes {
		if l.queue == queue {
			w.history.Excuse(w.now, l.name, excused)
		}
	}
}

// pause pauses a meter, or resumes it.
func (w *simulation) pause(m *simMeter, paused bool) {
	m.paused = paused
	w.history.Note(w.now, "", "%s is paused: %v", m.name, paused)
	w.core.Changed(w.now, m.name)
}

// speed makes a rate faster or slower.
func (w *simulation) speed(m *simMeter, times, over int64) {
	if m.window > 0 {
		return
	}
	m.interval = m.interval * times / over
	w.history.Note(w.now, "", "%s gets a permit each %.6f s", m.name, float64(m.interval)/1e6)
	w.core.Changed(w.now, m.name)
}

// takeover has another process give turns: it knows what Redis knows.
func (w *simulation) takeover() {
	w.history.Note(w.now, "", "another process gives turns")
	off := w.core.off
	w.core = New()
	w.core.off = off
	w.core.SetWeights(w.weights())
	clear(w.contended)
	for _, l := range w.lanes {
		if l.waiting > 0 {
			w.core.AddLane(l.name, l.number)
		}
		if len(l.granted) > 0 {
			var ids []string
			for _, k := range l.granted {
				ids = append(ids, k.id)
			}
			w.core.Expired(w.now, l.name, len(l.granted), ids, l.waiting > 0)
		}
	}
}
