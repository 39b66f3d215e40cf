package asynqdb

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	// Servers is the key of the zset in which asynq's servers register, headgate's among them.
	Servers = "asynq:servers"
	// ourServers is the key of a zset with those members of Servers that are servers of headgate. The
	// score is asynq's: the Unix second at which the registration ends.
	ourServers = "asynq:headgate_servers"
)

// A ForeignServer is an asynq server without headgate. It runs jobs without permits, and its asynq
// deletes archived jobs.
type ForeignServer struct {
	Host   string   `json:"host"`
	PID    int      `json:"pid"`
	Queues []string `json:"queues"` // those that a server of headgate serves, too; sorted
}

// String returns the server's host and process ID.
func (s ForeignServer) String() string { return fmt.Sprintf("%s:%d", s.Host, s.PID) }

// NoteServer notes that members of the zset Servers are servers of headgate. Registrations that
// ended an hour ago are forgotten.
func NoteServer(ctx context.Context, rdb redis.UniversalClient, members ...redis.Z) error {
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, ourServers, members...)
		p.ZRemRangeByScore(ctx, ourServers, "-inf", strconv.FormatInt(time.Now().Add(-time.Hour).Unix(), 10))
		return nil
	})
	return err
}

// ForeignServers returns the asynq servers without headgate that serve a queue of a server of
// headgate.
func (db DB) ForeignServers(ctx context.Context) ([]ForeignServer, error) {
	servers, err := asynq.NewInspectorFromRedisClient(db.Redis).Servers()
	if err != nil {
		return nil, err
	}
	ours, err := db.Redis.ZRange(ctx, ourServers, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	served := map[string]bool{}
	foreign := slices.DeleteFunc(servers, func(s *asynq.ServerInfo) bool {
		isOurs := slices.Contains(ours, fmt.Sprintf("%s:{%s:%d:%s}", Servers, s.Host, s.PID, s.ID))
		for queue := range s.Queues {
			served[queue] = served[queue] || isOurs
		}
		return isOurs
	})
	list := []ForeignServer{}
	for _, s := range foreign {
		f := ForeignServer{Host: s.Host, PID: s.PID}
		for queue := range s.Queues {
			if served[queue] {
				f.Queues = append(f.Queues, queue)
			}
		}
		if slices.Sort(f.Queues); len(f.Queues) > 0 {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b ForeignServer) int { return strings.Compare(a.String(), b.String()) })
	return list, nil
}
