package frontier

import "github.com/headgate/headgate/internal/script"

// The scripts that this package runs.
var (
	crawlClaimScript = script.New("crawl/claim")
	crawlDoneScript  = script.New("crawl/done")
	crawlFoundScript = script.New("crawl/found")
)
