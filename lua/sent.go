package lua

import "strconv"

// Sent counts how often a command was sent that has it for an argument. go-redis writes
// the arguments anew each time, also where it repeats a command by itself: when the
// answer got lost, and when Redis did not have the script's text.
type Sent int

// MarshalBinary implements encoding.BinaryMarshaler.
func (s *Sent) MarshalBinary() ([]byte, error) {
	*s++
	return strconv.AppendInt(nil, int64(*s), 10), nil
}
