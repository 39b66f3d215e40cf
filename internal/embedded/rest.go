package embedded

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// A Rest is a copy of what the next server will find, to look at while none runs.
type Rest struct {
	redis   *miniredis.Miniredis
	Saved   time.Time // when the last server saved its keys; zero if there are none
	Spooled int       // how many lines wait in the spool
}

// Look gives what waits in the [Default] folder.
func Look() (*Rest, error) {
	folder, err := Default()
	if err != nil {
		return nil, err
	}
	return folder.Look()
}

// Look gives what the next embedded server will find in the folder, which stays as it is.
// The caller must close it.
func (f Folder) Look() (*Rest, error) {
	unlock, err := f.lock()
	if err != nil {
		return nil, fmt.Errorf("read what is kept: %w", err)
	}
	defer unlock()
	r := &Rest{redis: miniredis.NewMiniRedis()}
	names, err := f.taken()
	var lines [][]byte
	if err == nil {
		lines, err = readLines(append(names, f.spoolFile()))
	}
	r.Spooled = len(lines)
	found := false
	if err == nil {
		found, err = restore(r.redis, f.keptFile())
	}
	if stat, missing := os.Stat(f.keptFile()); found && missing == nil {
		r.Saved = stat.ModTime()
	}
	if err != nil {
		return nil, fmt.Errorf("read what is kept: %w", err)
	}
	return r, nil
}

// Dial connects to the copy; its form is that of a Redis client's dialer.
func (r *Rest) Dial(context.Context, string, string) (net.Conn, error) { return r.redis.Dial() }

// Close forgets the copy.
func (r *Rest) Close() { r.redis.Close() }
