package redisstream

import (
	"crypto/sha1" //nolint:gosec // it is what Redis names scripts by
	_ "embed"
	"encoding/hex"
	"strings"
)

// A script runs in the server, alone. Its text is constant and begins with its
// name and version; all that varies are keys and arguments.
//
// It is called by its digest. A server that does not know it (it was restarted,
// or its scripts were flushed) certainly has not run it: the call is made again
// with the text, by which the server learns it.
type script struct{ text, digest string }

// newScript returns a script. Where its text says so, functions that several have
// are put in.
func newScript(text string) script {
	text = strings.Replace(text, "-- with ids\n", idsText, 1)
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	return script{text, hex.EncodeToString(sum[:])}
}

var (
	//go:embed lua/publish.lua
	publishText string
	//go:embed lua/attach.lua
	attachText string
	//go:embed lua/take.lua
	takeText string
	//go:embed lua/ack.lua
	ackText string
	//go:embed lua/delay.lua
	delayText string
	//go:embed lua/extend.lua
	extendText string
	//go:embed lua/leave.lua
	leaveText string
	//go:embed lua/maintain.lua
	maintainText string
	//go:embed lua/reset.lua
	resetText string
	//go:embed lua/stats.lua
	statsText string
	//go:embed lua/with/ids.lua
	idsText string
)

var (
	publishScript  = newScript(publishText)
	attachScript   = newScript(attachText)
	takeScript     = newScript(takeText)
	ackScript      = newScript(ackText)
	delayScript    = newScript(delayText)
	extendScript   = newScript(extendText)
	leaveScript    = newScript(leaveText)
	maintainScript = newScript(maintainText)
	resetScript    = newScript(resetText)
	statsScript    = newScript(statsText)
)

// args returns a call by digest, with room for more arguments. Keys come first.
func (s script) args(keys ...string) []any {
	args := make([]any, 0, 3+len(keys)+8)
	args = append(args, "evalsha", s.digest, len(keys))
	for _, k := range keys {
		args = append(args, k)
	}
	return args
}

// inFull turns a call by digest into one by text.
func (s script) inFull(args []any) {
	args[0], args[1] = "eval", s.text
}
