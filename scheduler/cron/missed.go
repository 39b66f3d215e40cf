package cron

import "github.com/headgate/headgate/internal/words"

// Missed says what becomes of missed ticks: those that are more than 30
// seconds late when a process comes back to look, as after an outage of Redis or of
// all replicas. Ticks during a Pause are not missed.
type Missed int

const (
	// MissedSkip drops them. It is the zero value.
	MissedSkip Missed = iota
	// MissedOnce runs the newest of them, unless a tick that is not late runs
	// at that moment anyway.
	MissedOnce
	// MissedAll runs them all, oldest first, up to Entry.MissedMax.
	MissedAll
)

var missedWords = words.Words{MissedSkip: "skip", MissedOnce: "once", MissedAll: "all"}

// String is the word as config files write it: skip, once or all.
func (m Missed) String() string { return missedWords.Text(int(m)) }

// MarshalText writes what String does. It fails for what is not one of the three.
func (m Missed) MarshalText() ([]byte, error) { return missedWords.Marshal(int(m)) }

// UnmarshalText reads what String writes. Its error lists the three.
func (m *Missed) UnmarshalText(text []byte) error { return missedWords.Unmarshal(text, (*int)(m)) }
