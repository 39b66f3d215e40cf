package lua

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// IsOnes reports whether a script failed at what only one of its calls may need, such as a
// meter that somebody has damaged. Then each is made alone.
func IsOnes(err error) bool {
	said, ok := errors.AsType[redis.Error](err)
	return ok && (strings.HasPrefix(said.Error(), "ERR ") || strings.HasPrefix(said.Error(), "WRONGTYPE "))
}
