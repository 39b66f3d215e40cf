package waitdb

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/throttle"
)

// ValidateFair refuses a key or a weight out of bounds.
func (j Job) ValidateFair() error {
	_, err := throttle.Normalize(throttle.Need{Limit: "fair", Key: j.Fair})
	if wrong, ok := errors.AsType[*throttle.FieldError](err); ok {
		wrong.Field = "fair"
		return wrong
	}
	if j.Weight < 0 || j.Weight > fairqueue.MaxKeyWeight {
		return &throttle.FieldError{Field: "weight", Value: strconv.Itoa(j.Weight), Want: fmt.Sprintf("want 1 to %d", fairqueue.MaxKeyWeight)}
	}
	return nil
}
