package worker

import (
	"context"
	"time"

	"github.com/headgate/headgate/tasks"
)

// removeUnfinished deletes the files of interrupted saves from the folders of the config, at once and
// then every tasks.UnfinishedLifetime, until ctx ends. So no such file stays for longer than a day.
func (w *Worker) removeUnfinished(ctx context.Context) {
	tick := time.NewTicker(tasks.UnfinishedLifetime)
	defer tick.Stop()
	for {
		for _, dir := range []string{w.startConfig.HTTP.SaveDir, w.startConfig.Crawl.SaveDir} {
			if dir == "" {
				continue
			}
			if removed, err := tasks.RemoveUnfinished(dir); err != nil {
				w.log.Warn("cannot delete the files of interrupted saves", "folder", dir, "error", err)
			} else if removed > 0 {
				w.log.Info("deleted the files of interrupted saves", "folder", dir, "files", removed)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
