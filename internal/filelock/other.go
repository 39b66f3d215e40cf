//go:build !unix && !windows

package filelock

import (
	"errors"
	"os"
)

// Lock cannot tell whether a file is another process's, so none is taken over.
func Lock(*os.File) error { return errors.ErrUnsupported }
