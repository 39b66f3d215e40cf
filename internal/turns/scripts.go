package turns

import "github.com/headgate/headgate/internal/script"

// The scripts that this package runs.
var (
	claimScript         = script.New("lanes/claim")
	expireScript        = script.New("lanes/expire")
	grantScript         = script.New("lanes/grant")
	lateScript          = script.New("lanes/late")
	leadScript          = script.New("lanes/lead")
	mendScript          = script.New("lanes/mend")
	presumeDeadScript   = script.New("lanes/presume_dead")
	publishSharesScript = script.New("lanes/publish_shares")
	recountScript       = script.New("lanes/recount")
	resignScript        = script.New("lanes/resign")
)
