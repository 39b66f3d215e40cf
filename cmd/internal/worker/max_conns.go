package worker

// maxConns bounds the connections of a server: to half of the descriptors that the process may have,
// so that the connections to Redis and those of the jobs have the others, and to 600, which is
// enough for all who look at the page.
func maxConns() int { return connsOf(descriptors()) }

func connsOf(descriptors uint64) int { return int(max(1, min(descriptors/2, 600))) }
