package main
import ("testing";"context";"os";"fmt";"time";"sync/atomic";"github.com/redis/go-redis/v9")
func TestZZ(t *testing.T){
 _ = withBench(context.Background(), os.Stdout, os.Stderr, func(b *bench) error {
  var stop atomic.Bool
  go func(){ c := redis.NewClient(b.server.Options()); for !stop.Load() { t0:=time.Now(); time.Sleep(5*time.Millisecond); t1 := time.Now(); c.Ping(context.Background()); t2:=time.Now(); if t2.Sub(t0) > 30*time.Millisecond { fmt.Println("machine: sleep 5ms took", t1.Sub(t0), "ping", t2.Sub(t1), "at", t2.UnixMicro()/1000%1000000) } } }()
  for _, s := range []spec{{Jobs:1000,Rate:50,Strict:true,Concurrency:10},{Jobs:1500,Rate:100,Capacity:10,Hosts:200,HostRate:1,Concurrency:10},{Jobs:4000,Rate:200,Capacity:10,Concurrency:10}} {
  out, err := systems[0].run(b, s)

  for i := 1; i < len(out.starts); i++ { if g := out.starts[i].admitted - out.starts[i-1].admitted; g > 60000 && !s.Strict { fmt.Println("gap", g/1000, "ms at", out.starts[i].admitted/1000%1000000, "job", i) } }
  r := newBacklogRow("headgate", s, out)
  fmt.Println(*r.LimitUsed, *r.Denials, r.CPU, err)
  }; stop.Store(true);return nil })
}
