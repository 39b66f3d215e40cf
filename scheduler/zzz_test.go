package scheduler
import "time"
var testTime = time.Unix(5,0)
