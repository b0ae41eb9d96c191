package redisstream

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it
	"embed"
	"encoding/hex"
	"strings"
)

// A script runs in the server, and no other command runs meanwhile. Its text is constant
// and begins with its name and version. Only keys and arguments vary.
//
// It is called by its digest. A server that does not know the digest, after a restart or a
// flush of its scripts, certainly has not run it. The call is then made again with the
// text, which the server remembers.
type script struct{ text, digest string }

//go:embed lua
var texts embed.FS

var (
	publishScript  = newScript("publish")
	attachScript   = newScript("attach")
	takeScript     = newScript("take")
	ackScript      = newScript("ack")
	delayScript    = newScript("delay")
	extendScript   = newScript("extend")
	leaveScript    = newScript("leave")
	maintainScript = newScript("maintain")
	resetScript    = newScript("reset")
	statsScript    = newScript("stats")
	groupsScript   = newScript("groups")
)

// newScript returns a script by its name. It replaces each line "-- with NAME" of the text
// by the file with/NAME.lua, whose functions several scripts share.
func newScript(name string) *script {
	text := textOf(name)
	for _, part := range []string{"ids", "lease", "count"} {
		text = strings.Replace(text, "-- with "+part+"\n", textOf("with/"+part), 1)
	}
	sum := sha1.Sum([]byte(text)) //nolint:gosec // see above
	return &script{text, hex.EncodeToString(sum[:])}
}

func textOf(name string) string {
	text, err := texts.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// call returns a call of the script by its digest.
func (s *script) call(keys []string, args ...any) *call {
	all := append(make([]any, 0, 3+len(keys)+len(args)), "evalsha", s.digest, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	return &call{args: append(all, args...), script: s}
}
