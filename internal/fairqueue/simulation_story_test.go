package fairqueue

import (
	"fmt"
	"strings"
)

// where notes, for a story, which lanes wait and hold elsewhere than before.
func (w *simulation) where() {
	if !w.history.Verbose {
		return
	}
	for _, l := range w.lanes {
		text := "waits nowhere"
		if known := w.core.lanes[l.name]; known != nil && known.at != nil {
			text = fmt.Sprintf("%d waits at %s", known.item.key, known.at.name)
			for _, n := range known.needs {
				if n.isHeld() {
					text += fmt.Sprintf(", holds %d of %s until %.6f s", n.Cost*n.heldTurns(w.now), n.name, float64(n.until)/1e6)
				}
			}
			if known.full {
				text += ", is full"
			} else if known.slotWait.in != nil {
				text += ", waits for a worker"
			}
		}
		if text != l.where {
			l.where = text
			w.history.Note(w.now, l.name, "%s", text)
		}
	}
}

// scene describes the meters and what the lanes need of them.
func (w *simulation) scene() string {
	var s strings.Builder
	for _, l := range w.lanes {
		fmt.Fprintf(&s, "lane %s:", l.queue)
		for _, n := range l.needs {
			fmt.Fprintf(&s, "  %d of %s (%.2f/s capacity %d)", n.cost, n.name, second/float64(n.interval), n.simMeter.capacity)
		}
		s.WriteString("\n")
	}
	return s.String()
}
