package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// What one request may have: as many arguments as Redis takes, and more bytes than
// any job has.
const (
	maxArgs  = 1 << 20
	maxBytes = 64 << 20
)

// A protocolError is what is wrong with a request. What follows it cannot be told
// from it, so the connection ends.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return "Protocol error: " + e.text }

// readRequest reads a command with its arguments, which is an array of bulk strings.
// There is at least one. miniredis's own reader takes the lengths as they come, and
// some end the process.
func readRequest(in *bufio.Reader) ([]string, error) {
	n, err := readLength(in, '*', 1, maxArgs)
	if err != nil {
		return nil, err
	}
	var args []string
	for left := maxBytes; n > 0; n-- {
		size, err := readLength(in, '$', 0, left)
		if err != nil {
			return nil, err
		}
		left -= size
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		if string(text[size:]) != "\r\n" {
			return nil, &protocolError{fmt.Sprintf("want a line break after %d bytes", size)}
		}
		args = append(args, string(text[:size]))
	}
	return args, nil
}

func readLength(in *bufio.Reader, kind byte, least, most int) (int, error) {
	line, err := in.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return 0, err
	}
	if end := len(line) - 2; err == nil && end > 0 && line[0] == kind && line[end] == '\r' {
		n, err := strconv.ParseUint(string(line[1:end]), 10, 31)
		if err == nil && int(n) >= least && int(n) <= most {
			return int(n), nil
		}
	}
	return 0, &protocolError{fmt.Sprintf("got %.40q, want %c and %d to %d", line, kind, least, most)}
}
