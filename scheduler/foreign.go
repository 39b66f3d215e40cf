package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// foreignInterval is the time between two warnings about asynq servers without headgate.
	foreignInterval = time.Minute
	// fullArchive is the number of archived jobs of a queue from which a server warns that asynq
	// deletes the jobs beyond 10,000.
	fullArchive = 9000
)

// warnForeign warns about asynq servers without headgate on the server's queues, once a minute until
// ctx ends. Such servers run jobs without permits.
func (s *Server) warnForeign(ctx context.Context) {
	for sleep(ctx, heartbeat); ctx.Err() == nil; sleep(ctx, foreignInterval) {
		found, err := s.db.ForeignServers(ctx)
		if err != nil {
			continue
		}
		var servers, queues []string
		for _, f := range found {
			shared := slices.DeleteFunc(f.Queues, func(queue string) bool { return s.byQueue[queue] == nil })
			if len(shared) > 0 {
				servers, queues = append(servers, f.String()), append(queues, shared...)
			}
		}
		if len(servers) == 0 {
			continue
		}
		slices.Sort(queues)
		queues = slices.Compact(queues)
		s.log.Warn("asynq servers without headgate take jobs of this server's queues, and run them without permits: stop them",
			"servers", servers, "queues", queues)
		for _, queue := range queues {
			archived, err := s.db.Redis.ZCard(ctx, asynqdb.Key(queue, asynqdb.Archived)).Result()
			if err == nil && archived > fullArchive {
				s.log.Warn("asynq servers without headgate delete archived jobs beyond 10,000 of a queue: stop them", "queue", queue, "archived", archived)
			}
		}
	}
}
