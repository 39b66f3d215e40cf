package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/rogpeppe/go-internal/lockedfile"
)

// A Folder is where the address file and what is kept are. Commands use [Default];
// tests use one of their own.
type Folder string

// Default is the folder "headgate" among the user's caches or, for a user
// without a home, among the temporary files. One that is there is refused unless it is
// the user's own.
func Default() (Folder, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("headgate-%d", os.Getuid()))
	if caches, err := os.UserCacheDir(); err == nil {
		dir = filepath.Join(caches, "headgate")
	}
	if err := private(dir); err != nil && !os.IsNotExist(err) {
		return "", err
	}
	return Folder(dir), nil
}

// private refuses a folder that is another user's or that others can write to, who could say
// there which Redis jobs go to: anybody can create one among the temporary files first, and
// root can have the home of somebody else.
func private(dir string) error {
	stat, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !stat.IsDir() || stat.Mode().Perm()&0o022 != 0 || !own(stat) {
		return fmt.Errorf("%s is %v: it must be a folder of your own that nobody else writes to;"+
			" remove it or set HOME", dir, fs.FormatFileInfo(stat))
	}
	return nil
}

func (f Folder) path(name string) string { return filepath.Join(string(f), name) }

func (f Folder) addrFile() string { return f.path("embedded.addr") }

func (f Folder) keptFile() string { return f.path("embedded.keys") }

// lock keeps all other users of the folder out until unlock is called or the
// process ends. It creates the folder if it is missing.
func (f Folder) lock() (unlock func(), err error) {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return nil, err
	}
	if err := private(string(f)); err != nil {
		return nil, err
	}
	if err := os.Chmod(string(f), 0o700); err != nil { // one that was there with another mode
		return nil, err
	}
	return lockedfile.MutexAt(f.path("lock")).Lock()
}

// identify is the command that an embedded Redis answers with its id.
const identify = "HEADGATE.ID"

// A mark is what the address file says: where the server's socket is and the id by
// which it is known. One that hung and comes back learns so that another has come.
type mark struct {
	Addr string `json:"addr"`
	ID   string `json:"id"`
}

// answer makes m reply with the id when asked.
func (k mark) answer(m *miniredis.Miniredis) error {
	return m.Server().Register(identify, func(c *server.Peer, _ string, _ []string) {
		c.WriteBulk(k.ID)
	})
}

func (f Folder) read() (mark, error) {
	var k mark
	text, err := os.ReadFile(f.addrFile())
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	return k, err
}

// replace writes a file in one step: a crash leaves the old one or the new one.
func replace(name string, write func(io.Writer) error) error {
	draft := name + ".new"
	file, err := os.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := write(file); err != nil {
		return errors.Join(err, os.Remove(draft)) // what is half written takes room on a full disk
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(draft, name)
}

// write replaces the address file in one step, because Find reads it without
// the lock.
func (f Folder) write(k mark) error {
	return replace(f.addrFile(), func(to io.Writer) error { return json.NewEncoder(to).Encode(k) })
}

// Dial connects to the embedded Redis whose address is known.
func Dial(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", addr)
}

// Find looks for a running embedded Redis in the [Default] folder.
func Find(ctx context.Context) (addr string, ok bool) {
	folder, err := Default()
	if err != nil {
		return "", false
	}
	return folder.Find(ctx)
}

// patience is for how long a server may take to answer before it counts as gone. One
// that is gone refuses at once, so this is long enough for a busy machine.
const patience = 5 * time.Second

// Find reads the folder's address file and asks the server there whether it is the
// one that wrote it.
func (f Folder) Find(ctx context.Context) (addr string, ok bool) {
	k, err := f.read()
	if err != nil {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return k.Addr, k.alive(ctx)
}

// alive speaks the protocol by hand: Redis's client logs every server that it
// does not reach, and here that is no news.
func (k mark) alive(ctx context.Context) bool {
	conn, err := Dial(ctx, k.Addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := fmt.Fprintf(conn, "*1\r\n$%d\r\n%s\r\n", len(identify), identify); err != nil {
		return false
	}
	want := fmt.Sprintf("$%d\r\n%s\r\n", len(k.ID), k.ID)
	got := make([]byte, len(want))
	_, err = io.ReadFull(conn, got)
	return err == nil && string(got) == want
}
