package embedded

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// keptForm is how a file of kept keys begins.
const keptForm = "headgate keys 1"

// A kept key is one of Redis's with its value, in the field that its kind needs.
type kept struct {
	Key     string
	Kind    string    // as Redis's command TYPE has it
	Expires time.Time // zero for one that does not
	Text    string
	Hash    map[string]string
	List    []string
	Set     []string
	Sorted  map[string]float64
	Stream  []miniredis.StreamEntry
}

// readAll gives all keys of m, while no command runs.
func readAll(m *miniredis.Miniredis) ([]kept, error) {
	db := m.DB(0)
	keys := db.Keys()
	all := make([]kept, 0, len(keys))
	for _, key := range keys {
		k, err := read(db, key)
		if err != nil {
			return nil, fmt.Errorf("keep key %q: %w", key, err)
		}
		all = append(all, k)
	}
	return all, nil
}

// encode writes keys up to the first that cannot be written: the others would say the same.
func encode(all []kept, to io.Writer) error {
	out := bufio.NewWriter(to)
	encoder := gob.NewEncoder(out)
	err := encoder.Encode(keptForm)
	for i := 0; i < len(all) && err == nil; i++ {
		err = encoder.Encode(all[i])
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// read gives a key with a copy of what is in it: commands go on while it is written, and
// miniredis gives out its own lists, sorted sets and streams.
func read(db *miniredis.RedisDB, key string) (kept, error) {
	k := kept{Key: key, Kind: db.Type(key)}
	if ttl := db.TTL(key); ttl > 0 {
		k.Expires = time.Now().Add(ttl)
	}
	var err error
	switch k.Kind {
	case "string":
		k.Text, err = db.Get(key)
	case "hash":
		var fields []string
		fields, err = db.HKeys(key)
		k.Hash = make(map[string]string, len(fields))
		for _, field := range fields {
			k.Hash[field] = db.HGet(key, field)
		}
	case "list":
		k.List, err = db.List(key)
		k.List = slices.Clone(k.List)
	case "set":
		k.Set, err = db.Members(key)
	case "zset":
		k.Sorted, err = db.SortedSet(key)
		k.Sorted = maps.Clone(k.Sorted)
	case "stream":
		k.Stream, err = db.Stream(key)
		k.Stream = slices.Clone(k.Stream)
	default:
		err = fmt.Errorf("no way to keep a %s", k.Kind)
	}
	return k, err
}

// restore gives m the keys of a file, and says when they were saved: never, if there is none.
func restore(m *miniredis.Miniredis, name string) (saved time.Time, err error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return saved, nil
	}
	if err != nil {
		return saved, err
	}
	defer file.Close()
	stat, err := file.Stat()
	if err != nil {
		return saved, err
	}
	if err := decode(bufio.NewReader(file), m.DB(0)); err != nil {
		return saved, fmt.Errorf("the jobs that were kept in %s cannot be read: %w; move the file away to start without them", name, err)
	}
	return stat.ModTime(), nil
}

// decode reads what encode has written.
func decode(from io.Reader, db *miniredis.RedisDB) error {
	decoder := gob.NewDecoder(from)
	var form string
	if err := decoder.Decode(&form); err != nil {
		return err
	}
	if form != keptForm {
		return fmt.Errorf("its form is %.40q, not %q", form, keptForm)
	}
	for {
		var k kept
		err := decoder.Decode(&k)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && !k.ended() {
			err = k.write(db)
		}
		if err != nil {
			return fmt.Errorf("key %q: %w", k.Key, err)
		}
	}
}

// ended reports whether the key's time is over.
func (k kept) ended() bool { return !k.Expires.IsZero() && !k.Expires.After(time.Now()) }

func (k kept) write(db *miniredis.RedisDB) error {
	var err error
	switch k.Kind {
	case "string":
		err = db.Set(k.Key, k.Text)
	case "hash":
		for field, value := range k.Hash {
			db.HSet(k.Key, field, value)
		}
	case "list":
		_, err = db.Push(k.Key, k.List...)
	case "set":
		_, err = db.SetAdd(k.Key, k.Set...)
	case "zset":
		for member, score := range k.Sorted {
			_, _ = db.ZAdd(k.Key, score, member) // which fails only if the key is of another kind
		}
	case "stream":
		for _, entry := range k.Stream {
			if _, err = db.XAdd(k.Key, entry.ID, entry.Values); err != nil {
				break
			}
		}
	}
	if err == nil && !k.Expires.IsZero() {
		db.SetTTL(k.Key, time.Until(k.Expires))
	}
	return err
}

// Look gives a copy of what the next embedded server will find in the folder, which stays as
// it is: how to dial that, and when it was saved: never, if there is none.
func (f Folder) Look() (dial func(context.Context, string, string) (net.Conn, error), saved time.Time, err error) {
	unlock, err := f.lock()
	if err != nil {
		return nil, saved, fmt.Errorf("read what is kept: %w", err)
	}
	defer unlock()
	m := miniredis.NewMiniRedis()
	if saved, err = restore(m, f.keptFile()); err != nil {
		return nil, saved, fmt.Errorf("read what is kept: %w", err)
	}
	return func(context.Context, string, string) (net.Conn, error) { return m.Dial() }, saved, nil
}
