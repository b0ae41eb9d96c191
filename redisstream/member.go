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
// it must have been left (lua/with/lease.lua). The consumer "parked" is no member: it owns what is
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
func millis(d time.Duration) int64 { return roundUp(d, time.Millisecond) }

// micros is d in microseconds, rounded up. A delay is not in milliseconds: rounded to
// these, a message would be due up to one later than the bus counts on.
func micros(d time.Duration) int64 { return roundUp(d, time.Microsecond) }

func roundUp(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit > 0 {
		n++
	}
	return n
}
