package redisstream

import (
	"crypto/rand"
	"os"
	"strconv"
	"strings"
	"time"
)

// memberName is what a member is called among the consumers of its group. Its
// lease is part of it: whoever takes what it has left behind reads there how long
// it must have been left. The consumer "parked" is no member: it owns what is
// delayed, which so stays pending in its group and is trimmed by nothing.
func memberName(lease time.Duration) string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	host = strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r
		}
		return '_'
	}, host)
	return host + "-" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(rand.Text()[:8]) + "-" + strconv.FormatInt(millis(lease), 10)
}

// millis is d in milliseconds, rounded up: nothing is due too early.
func millis(d time.Duration) int64 {
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
