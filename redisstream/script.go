package redisstream

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A script is a Lua program in the server. While it runs, the server runs no other command.
// The text of a script is constant and begins with its name and version. Only keys and
// arguments change.
//
// A call names the script by its digest. After a restart or a flush of its scripts, the
// server does not know the digest. It then runs nothing and returns an error. The call is
// made again with the text, and the server remembers it.
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
	deleteScript   = newScript("delete")
	statsScript    = newScript("stats")
	groupsScript   = newScript("groups")
	clockScript    = newScript("clock")
	declareScript  = newScript("declare")
	hearScript     = newScript("hear")
	expireScript   = newScript("expire")
	indexScript    = newScript("index")
	pauseScript    = newScript("pause")
	settleScript   = newScript("settle")
	settledScript  = newScript("settled")
)

// newScript returns the script with this name. In its text, the file with/NAME.lua replaces
// each line "-- with NAME". Several scripts share the functions of such a file.
func newScript(name string) *script {
	text := textOf(name)
	for _, part := range []string{"ids", "lease", "count", "instance", "release", "start", "floor", "settings", "now", "members", "gone"} {
		text = strings.Replace(text, "-- with "+part+"\n", textOf("with/"+part), 1)
	}
	return &script{text, redis.NewScript(text).Hash()}
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
