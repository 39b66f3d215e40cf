package duration

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Days and weeks are read wherever hours are. Other texts that Go does not read are errors.
func TestParse(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"7d": 168 * time.Hour, "2w": 336 * time.Hour, "168h": 168 * time.Hour, "1d12h": 36 * time.Hour, "1.5d": 36 * time.Hour, "-1d": -24 * time.Hour,
		"1w1d1h1m1s1ms": 193*time.Hour + time.Minute + time.Second + time.Millisecond, "0d": 0, "+2d": 48 * time.Hour, "1h30m": 90 * time.Minute, "0": 0, ".5w": 84 * time.Hour,
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "7", "7 d", "1dd", "--1d", "+-1d", "7days", "1d-1h", "999999999w", "106751d24h", "9223372036s1w", "d7", "1x2d", "1d."} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is %s, want an error", text, got)
		}
	}
}

// TestText: a text has at most two units.
func TestText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		688*time.Hour + 51*time.Second: "28 d 16 h", 28*24*time.Hour + 17*time.Hour: "28 d 17 h", 0: "0 s", 90 * time.Second: "1 min 30 s", 250 * time.Microsecond: "250 µs",
		1500 * time.Millisecond: "1.5 s", 2 * time.Second: "2 s", 59*time.Minute + 59600*time.Millisecond: "1 h", 24*time.Hour - time.Second: "1 d", 42 * time.Millisecond: "42 ms",
		-3 * time.Hour: "-3 h", 48*time.Hour + 20*time.Minute: "2 d", 1461 * 24 * time.Hour: "4 years", math.MinInt64: "-292 years", 41*time.Hour + 38*time.Minute: "1 d 18 h",
	} {
		if got := Text(d); got != want {
			t.Errorf("Text(%s) = %s, want %s", d, got, want)
		}
	}
}

// TestExact: a setting is read back as it was.
func TestExact(t *testing.T) {
	for d, want := range map[time.Duration]string{
		168 * time.Hour: "7d", 24 * time.Hour: "24h", 36 * time.Hour: "36h", 60 * time.Hour: "2d12h", 90 * time.Minute: "1h30m", 30 * time.Second: "30s", time.Minute: "1m", 0: "0s",
		-time.Hour: "-1h", 721 * time.Hour: "30d1h",
	} {
		if got := Exact(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(math.MinInt64+1, math.MaxInt64).Draw(t, "d"))
		if unit := rapid.SampledFrom([]time.Duration{1, time.Second, time.Minute, time.Hour}).Draw(t, "unit"); d > -math.MaxInt64/unit {
			d -= d % unit
		}
		if back, err := Parse(Exact(d)); err != nil || back != d {
			t.Fatalf("%s is written as %s and read as %s, %v", d, Exact(d), back, err)
		}
	})
}
