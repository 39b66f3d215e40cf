package throttle

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
)

// Origin says where the definition of a limit in Redis comes from.
type Origin struct {
	// Config is the definition that a config, or a program's Define, gave last. It is nil if none
	// has defined the limit.
	Config *Limit
	// Set reports whether Set wrote the definition that is in force, in place of Config.
	Set bool
	// At is the time at which the definition in force was written, by Redis's clock.
	At time.Time
	// By is the actor that wrote it, or empty.
	By string
}

// Origin returns where the definition of a limit comes from. For a limit that does not exist, it
// returns the zero Origin.
func (s *shared) Origin(ctx context.Context, name string) (Origin, error) {
	reply, err := s.rdb.HMGet(ctx, s.prefix+"limit:"+name, "text", "file", "since_us", "by").Result()
	if err != nil {
		return Origin{}, unavailable(err)
	}
	var fields [4]string
	for i := range fields {
		fields[i], _ = reply[i].(string)
	}
	o := Origin{Set: fields[0] != fields[1], At: time.UnixMicro(number(fields[2])), By: fields[3]}
	if config, ok := s.ParseText(name, fields[1]); ok {
		o.Config = &config
	}
	return o, nil
}

// Unset ends a change by Set: it restores the definition that a config, or Define, gave last. The
// overrides of keys stay.
func (s *shared) Unset(ctx context.Context, name string) error {
	origin, err := s.Origin(ctx, name)
	if err == nil && origin.Config == nil {
		err = fmt.Errorf("%w: %s in any config", ErrNoLimit, name)
	}
	if err == nil {
		_, err = s.write(ctx, fromUnset, *origin.Config)
	}
	return err
}

// ParseText returns the limit that String wrote as the text. ok is false for any other text.
func (s *shared) ParseText(name, text string) (l Limit, ok bool) {
	kind, settings, _ := strings.Cut(text+" ", " ")
	value := func(setting string) string { // a wrong value becomes a zero value, and the text differs
		_, after, _ := strings.Cut(" "+settings, " "+setting+" ")
		word, _, _ := strings.Cut(after, " ")
		return word
	}
	span := func(setting string) time.Duration {
		d, _ := duration.Parse(value(setting))
		return d
	}
	l = Limit{Name: name, Kind: Kind(kind)}
	if apps := value("apps"); apps != "" {
		l.Apps = strings.Split(apps, ",")
		settings = strings.Replace(settings, "apps "+apps, "", 1) // an app can have the name of a setting
	}
	if rate, _, _ := strings.Cut(settings, " "); l.Kind != Concurrency {
		l.Rate, _ = ParseRate(rate)
	}
	l.Capacity, _ = strconv.Atoi(value("capacity"))
	l.Margin, l.Zone = span("margin"), value("zone")
	l.Lease, l.MaxBlock = span("lease"), span("max_block")
	if strings.Contains(settings, "adapt ") {
		l.Adapt = &Adapt{Latency: span("latency")}
		l.Adapt.Min, _ = ParseRate(value("min"))
	}
	return l, l.Validate() == nil && l.String() == text
}
