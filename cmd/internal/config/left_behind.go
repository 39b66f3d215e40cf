package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/embedded"
	"github.com/headgate/headgate/internal/display"
)

const (
	// countTimeout bounds the count of what an embedded Redis holds.
	countTimeout = 30 * time.Second
	// countFile is the file in the folder of an embedded Redis that has the last count. A count
	// starts the Redis, so it is repeated only if the data are younger than the file.
	countFile = "left.json"
	// meterKept is how long a meter's key lives after its state matters.
	meterKept = time.Minute
)

// leftBehind is what an embedded Redis holds.
type leftBehind struct {
	Unfinished int `json:"unfinished"` // jobs
	Kept       int `json:"kept"`       // finished and archived jobs
	Used       int `json:"used"`       // keys of limits with used permits
}

// LeftBehind returns a warning if r is not the embedded Redis, and the embedded Redis of the same
// config holds unfinished jobs or used permits. A user who adds redis: to a config does not expect
// that its jobs and today's used quota stay in the folder. If there is no reason to warn, it returns
// "".
func (r Redis) LeftBehind(ctx context.Context) string {
	written := lastWrite(r.Folder())
	if r.IsZero() || r.shown == shownEmbedded || written.IsZero() {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	left, err := r.countLeft(ctx, written)
	switch {
	case err != nil:
		return fmt.Sprintf("the folder %s has data of the embedded Redis, which cannot be read, so jobs and used permits may be left there: %v", r.Folder(), err)
	case left.Unfinished+left.Used == 0:
		return ""
	}
	return fmt.Sprintf("the embedded Redis in %s still has %s, %s and the used permits of %s, which the Redis at %s does not have: move them as docs/operating.md#a-redis-of-your-own shows, or delete the folder",
		r.Folder(), display.Count(left.Unfinished, "unfinished job"), display.Count(left.Kept, "kept job"), display.Count(left.Used, "key"), r)
}

// dataFiles are the data of an embedded Redis, as redis-server and as miniredis write them.
func dataFiles(folder string) []string {
	files, _ := filepath.Glob(filepath.Join(folder, "appendonlydir", "*")) // the pattern is valid
	return append(files, filepath.Join(folder, "appendonly.aof"))
}

// lastWrite returns when an embedded Redis last wrote its data, or the zero Time if it has none.
func lastWrite(folder string) (last time.Time) {
	for _, path := range dataFiles(folder) {
		if stat, err := os.Stat(path); err == nil && stat.ModTime().After(last) {
			last = stat.ModTime()
		}
	}
	return last
}

// copyData copies the data of an embedded Redis to another folder.
func copyData(to, from string) error {
	for _, path := range dataFiles(from) {
		copied := filepath.Join(to, strings.TrimPrefix(path, from))
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(copied), 0o700), os.WriteFile(copied, text, 0o600))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// countLeft returns the stored count if it is not older than the data. If it is, countLeft counts
// with an embedded Redis, because only a Redis reads all forms of its data. That Redis gets a copy,
// because another Redis may run with the data, and two would damage them.
func (r Redis) countLeft(ctx context.Context, written time.Time) (left leftBehind, err error) {
	path := filepath.Join(r.Folder(), countFile)
	if stat, err := os.Stat(path); err == nil && !stat.ModTime().Before(written) {
		if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &left) == nil {
			return left, nil
		}
	}
	parent, err := os.MkdirTemp("", "headgate")
	if err != nil {
		return left, err
	}
	defer os.RemoveAll(parent)
	if err = copyData(filepath.Join(parent, embedded.FolderName), r.Folder()); err != nil {
		return left, err
	}
	rdb, end, err := Redis{configFolder: parent}.ConnectOrCreate(ctx, func(string) {})
	if err != nil {
		return left, err
	}
	left, err = count(ctx, rdb)
	if ended := end(); err == nil {
		err = ended
	}
	if text, wrong := json.Marshal(left); err == nil && wrong == nil {
		_ = os.WriteFile(path, text, 0o600) // without the file, the next command counts again
	}
	return left, err
}

func count(ctx context.Context, rdb redis.UniversalClient) (left leftBehind, err error) {
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	queues, err := inspector.Queues()
	for i := 0; i < len(queues) && err == nil; i++ {
		var q *asynq.QueueInfo
		if q, err = inspector.GetQueueInfo(queues[i]); err == nil {
			left.Unfinished += q.Pending + q.Active + q.Scheduled + q.Retry + q.Aggregating
			left.Kept += q.Completed + q.Archived
		}
	}
	for meters := rdb.Scan(ctx, 0, "hg:{*}:m:*", 1000).Iterator(); err == nil && meters.Next(ctx); {
		var expires time.Duration
		if expires, err = rdb.PTTL(ctx, meters.Val()).Result(); expires == -1 || expires > meterKept {
			left.Used++
		}
	}
	return left, err
}

// Beside returns r with the folder of the config that has old, for the embedded Redis.
func (r Redis) Beside(old Redis) Redis {
	r.configFolder = old.configFolder
	return r
}
