package scheduler
import ("testing";"fmt";"github.com/headgate/headgate/internal/redistest")
func TestZZ(t *testing.T){
	_, rdb := redistest.Mini(t)
	fmt.Println(rdb.Eval(t.Context(), "local t={1,2} return table.concat(t, ',')..'|'..string.format('%.0f', 1)..'|'..tostring(redis.call('ZREM','a','b'))..'|'..tostring(redis.call('ZREM','a','b')==0)", []string{"x"}).Result())
	rdb.ZAdd(t.Context(), "a", redisZ(testTime, "b"))
	fmt.Println(rdb.Eval(t.Context(), "local function f(job, r) if redis.call('ZREM','a',job)==0 then return false end for i=1,#r.ids do end return true end local r={ids={1}} local a = f('b', r) return tostring(a)", []string{"x"}).Result())
	fmt.Println(rdb.Eval(t.Context(), "local record='3\\n55\\n1\\nq\\napi|' local a,b,c,d,e = string.match(record, '^(%-?%d+)\\n(%d+)\\n([%d,]+)\\n([^\\n]*)\\n(.*)$') return {a,b,c,d,e}", []string{"x"}).Result())
}
