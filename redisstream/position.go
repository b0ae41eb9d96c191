package redisstream

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A position is the ID of a stream entry with leading zeros, such as
// 01795243593723-00000000000000000000. If another program chose an ID whose first number has
// more than 14 digits, a letter precedes it, from a for 15 digits to f for 20. This makes
// positions compare as strings. Redis accepts a position without its letter as an ID.
const (
	milliDigits  = 14
	serialDigits = 20
	positionLen  = milliDigits + 1 + serialDigits // of a position without a letter
	noPosition   = "0-0"                          // lower than the position of any message
)

// position returns the position of an ID in the form in which Redis writes it.
func position(mem *slab.Slab, id []byte) string {
	const zeros = "00000000000000000000"
	var room [1 + 2*serialDigits + 1]byte
	millis, serial, _ := bytes.Cut(id, []byte("-"))
	to := room[:0]
	if more := len(millis) - milliDigits; more > 0 {
		to = append(to, longIDLetter(more))
	} else {
		to = append(to, zeros[:-more]...)
	}
	to = append(append(to, millis...), '-')
	to = append(to, zeros[:max(serialDigits-len(serial), 0)]...)
	return mem.Text(append(to, serial...))
}

// longIDLetter returns the letter for a first number with this many digits more than 14.
func longIDLetter(more int) byte { return 'a' - 1 + byte(more) }

// entryID returns a position in a form that Redis accepts as an ID. The result is a pointer
// because commands take a *string argument without an allocation.
func entryID(position *string) *string {
	if len(*position) <= positionLen {
		return position
	}
	id := strings.TrimLeft(*position, "abcdef")
	return &id
}

// parseID returns the ID for a position that the caller provides: one of this backend, or an ID
// as Redis writes it.
func parseID(p string) (any, error) {
	millis, serial, _ := strings.Cut(p, "-")
	_, err := strconv.ParseUint(millis, 10, 64)
	_, bad := strconv.ParseUint(serial, 10, 64)
	if err == nil && bad == nil {
		return p, nil
	}
	if err := checkPosition(p); err != nil {
		return nil, err
	}
	return *entryID(&p), nil
}

// checkPosition returns ErrRefused unless p is a position of this backend. It also accepts a
// long ID without a letter, because earlier versions made such positions.
func checkPosition(p string) error {
	millis, serial, _ := strings.Cut(p, "-")
	digits := strings.TrimLeft(millis, "abcdef")
	more := len(digits) - milliDigits
	ok := len(serial) == serialDigits && more >= 0 && (millis == digits || more > 0 && millis == string(longIDLetter(more))+digits)
	for _, number := range []string{digits, serial} { // each number of an ID is at most 2⁶⁴−1
		_, err := strconv.ParseUint(number, 10, 64)
		ok = ok && err == nil
	}
	if !ok {
		return fmt.Errorf("%w: %.50q is not a position in a stream", backend.ErrRefused, p)
	}
	return nil
}

// startID returns where a group with this start begins, in the form that lua/include/start.lua
// reads: 0, $, the ID after which the group begins, or @ and the time in milliseconds.
func startID(start backend.Start) (string, error) {
	switch start {
	case backend.StartEarliest:
		return "0", nil
	case backend.StartLatest:
		return "$", nil
	}
	if t, ok := start.At(); ok {
		return "@" + strconv.FormatInt(entryMillis(t), 10), nil
	}
	position, ok := start.After()
	if !ok {
		return "", fmt.Errorf("%w: start %q", backend.ErrRefused, start)
	}
	return *entryID(&position), checkPosition(position)
}

const latestMillis = 1 << 53 // Lua counts milliseconds exactly up to this number

// entryMillis returns the first number of the ID of an entry that is stored at t.
func entryMillis(t time.Time) int64 { return min(max(t.UnixMilli(), 0), latestMillis) }

// entryTime returns the server's time in the ID of an entry. The server made the ID from its
// clock if the time is in the years 2001 to 2096; for any other ID, known is false.
func entryTime(id string) (at time.Time, known bool) {
	first, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(first, 10, 64)
	return time.UnixMilli(ms), err == nil && 1e12 < ms && ms < 4e12
}
