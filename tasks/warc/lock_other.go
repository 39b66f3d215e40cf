//go:build !unix

package warc

import (
	"errors"
	"os"
)

// lock cannot tell whether a file is another process's, so none is taken over: what a
// process that died left behind keeps its .open, and may end in part of a record.
func lock(*os.File) error { return errors.ErrUnsupported }
