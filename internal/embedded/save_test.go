package embedded

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// saved gives the keys that are saved in a folder.
func saved(t *testing.T, f Folder) map[string]kept {
	t.Helper()
	m := miniredis.NewMiniRedis()
	if _, err := restore(m, f.keptFile()); err != nil {
		t.Fatal(err)
	}
	keys, err := readAll(m)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]kept{}
	for _, k := range keys {
		all[k.Key] = k
	}
	return all
}

// bubbled is a server without a socket, so that it can be in a bubble, which saves.
func bubbled(t *testing.T, saving func(error)) *Server {
	s := &Server{folder: Folder(t.TempDir()), redis: miniredis.NewMiniRedis(), mark: mark{ID: "A"}, Saving: saving}
	s.socket = &socket{redis: s.redis}
	if err := errors.Join(begin(s.redis), s.folder.write(s.mark)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go s.saveOn(done)
	t.Cleanup(func() { close(done); s.redis.Close() })
	return s
}

func TestItSavesEverySecondOrTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bubbled(t, func(err error) { t.Errorf("saving: %v", err) })
		for _, value := range []string{"1", "2", "3"} {
			if err := s.redis.Set("key", value); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * saveOften)
			synctest.Wait()
			if got := saved(t, s.folder)["key"].Text; got != value {
				t.Errorf("saved is %q, want %q", got, value)
			}
		}
	})
}

// A disk that is full is said once, keeps what was saved, and is said to be well again.
func TestSavingThatFailsIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []error
		s := bubbled(t, func(err error) { said = append(said, err) })
		wait := func() { time.Sleep(4 * saveOften); synctest.Wait() }
		draft := s.folder.keptFile() + ".new"
		_ = s.redis.Set("key", "early")
		wait()
		if err := os.Mkdir(draft, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = s.redis.Set("key", "late")
		wait()
		if got := saved(t, s.folder)["key"].Text; got != "early" {
			t.Errorf("saved is %q, want what was before", got)
		}
		if err := os.Remove(draft); err != nil {
			t.Fatal(err)
		}
		wait()
		if got := saved(t, s.folder)["key"].Text; got != "late" {
			t.Errorf("saved is %q, want the last", got)
		}
		if len(said) != 2 || said[0] == nil || !strings.Contains(said[0].Error(), "is a directory") || said[1] != nil {
			t.Errorf("said are %v, want one failure and its end", said)
		}
	})
}

// What is saved is one moment: a job that moves meanwhile is in one place.
func TestWhatIsSavedIsOneMoment(t *testing.T) {
	s := start(t, Folder(t.TempDir()))
	const jobs = 500
	for range jobs {
		if _, err := s.redis.Push("a", "job"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2000 { // which are read between the two
		if err := s.redis.Set(fmt.Sprint("m", i), ""); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		rdb := client(t, s)
		wg.Go(func() {
			for from, to := "a", "z"; ; from, to = to, from {
				for range jobs {
					select {
					case <-stop:
						return
					default:
						_ = rdb.LMove(t.Context(), from, to, "right", "left").Err()
					}
				}
			}
		})
	}
	for range 20 {
		if err := s.saveAgain(); err != nil {
			t.Error(err)
		}
		if all := saved(t, s.folder); len(all["a"].List)+len(all["z"].List) != jobs {
			t.Errorf("saved are %d and %d jobs, want %d together", len(all["a"].List), len(all["z"].List), jobs)
		}
	}
	close(stop)
	wg.Wait()
}

// What is there when others can find the server is saved.
func TestWhatIsPreparedIsSavedBeforeItIsFound(t *testing.T) {
	f := Folder(t.TempDir())
	s, err := f.start(func(s *Server) (func(), error) {
		return func() {
			if got := saved(t, f)["limit"].Text; got != "prepared" {
				t.Errorf("saved is %q", got)
			}
		}, client(t, s).Set(t.Context(), "limit", "prepared", 0).Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// A server that hung and was replaced leaves alone what the other one saves.
func TestAReplacedServerSavesNothing(t *testing.T) {
	f := Folder(t.TempDir())
	first := start(t, f)
	if err := client(t, first).Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := f.write(mark{Addr: "/nowhere", ID: "another"}); err != nil {
		t.Fatal(err)
	}
	if err := first.saveAgain(); err == nil {
		t.Error("it does not say that it saves nothing")
	}
	if all := saved(t, f); len(all) > 0 {
		t.Errorf("it saved %v", all)
	}
}
