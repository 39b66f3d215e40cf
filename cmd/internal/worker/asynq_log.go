package worker

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/headgate/headgate/internal/redishealth"
)

// asynqLog logs what asynq logs.
type asynqLog struct{ log *slog.Logger }

var ofAsynq = redishealth.MayBeLate(context.Background())

// Warn leaves out what logFailure logs.
func (l asynqLog) Warn(args ...any) {
	text := fmt.Sprint(args...)
	if strings.HasPrefix(text, "Retry exhausted") || strings.HasPrefix(text, "revoke task") {
		return
	}
	l.log.WarnContext(ofAsynq, text)
}

func (l asynqLog) Debug(args ...any) { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.ErrorContext(ofAsynq, fmt.Sprint(args...)) }
func (l asynqLog) Fatal(args ...any) { l.log.ErrorContext(ofAsynq, fmt.Sprint(args...)) }
