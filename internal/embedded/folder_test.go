package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// setEnv points the user's caches and the temporary files to the given folders.
func setEnv(t *testing.T, home, tmp string) {
	t.Helper()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("LocalAppData", home)
	t.Setenv("TMPDIR", tmp)
}

func TestDefaultIsAmongTheCaches(t *testing.T) {
	setEnv(t, t.TempDir(), t.TempDir())
	caches, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Default()
	if want := Folder(filepath.Join(caches, "headgate")); got != want || err != nil {
		t.Errorf("Default gives %s, %v; want %s", got, err, want)
	}
}

func TestDefaultWithoutAHome(t *testing.T) {
	tmp := t.TempDir()
	setEnv(t, "", tmp)
	want := filepath.Join(tmp, fmt.Sprintf("headgate-%d", os.Getuid()))
	got, err := Default()
	if got != Folder(want) || err != nil {
		t.Fatalf("Default gives %s, %v; want %s", got, err, want)
	}
	s := start(t, Folder(want))
	if stat, err := os.Stat(want); err != nil || stat.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v; want mode 0700", stat, err)
	}
	if addr, ok := Find(t.Context()); addr != s.Addr() || !ok {
		t.Errorf("Find gives %q, %v; want %q", addr, ok, s.Addr())
	}
}

func TestDefaultRefusesAFolderThatOthersMayHaveMade(t *testing.T) {
	tests := map[string]func(path string) error{
		"writable to others": func(path string) error {
			// Mkdir takes the umask off, Chmod does not.
			if err := os.Mkdir(path, 0o700); err != nil {
				return err
			}
			return os.Chmod(path, 0o777)
		},
		"a link elsewhere": func(path string) error { return os.Symlink(os.TempDir(), path) },
		"a file":           func(path string) error { return os.WriteFile(path, nil, 0o600) },
	}
	for name, create := range tests {
		for _, home := range []string{"", t.TempDir()} { // in a home that is another's, too
			t.Run(name+" "+home, func(t *testing.T) {
				setEnv(t, home, t.TempDir())
				folder, err := Default()
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(os.MkdirAll(filepath.Dir(string(folder)), 0o700), create(string(folder))); err != nil {
					t.Fatal(err)
				}
				if got, err := Default(); err == nil {
					t.Errorf("Default accepts %s", got)
				}
				if addr, ok := Find(t.Context()); ok {
					t.Errorf("Find finds %s there", addr)
				}
				if addr, err := folder.NewHost(nil).Addr(t.Context()); err == nil {
					t.Errorf("it starts at %s", addr)
				}
			})
		}
	}
}

func TestDefaultRefusesAFolderOfAnother(t *testing.T) {
	another := "/" // root's
	if os.Getuid() == 0 {
		another = t.TempDir()
		if err := os.Chown(another, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := private(another); err == nil {
		t.Errorf("%s is taken for the user's own", another)
	}
	if addr, err := Folder(another).NewHost(nil).Addr(t.Context()); err == nil {
		t.Errorf("it starts at %s", addr)
	}
}
