//go:build !unix

package warc

import (
	"errors"
	"os"
)

// lock cannot tell whether a file is another process's, so none is taken over.
func lock(*os.File) error { return errors.ErrUnsupported }
