package redisstream

import (
	"bytes"
	"fmt"
	"strconv"
)

// A position is the id of a stream entry with leading zeros, such as
// 01795243593723-00000000000000000000: Redis takes it wherever it takes an id,
// and positions compare as strings.
const (
	milliDigits  = 14
	serialDigits = 20
	positionLen  = milliDigits + 1 + serialDigits
)

const zeros = "00000000000000000000"

// appendPosition appends the position of an id as Redis writes it.
func appendPosition(to, id []byte) []byte {
	millis, serial, _ := bytes.Cut(id, []byte("-"))
	to = appendPadded(to, millis, milliDigits)
	to = append(to, '-')
	return appendPadded(to, serial, serialDigits)
}

func appendPadded(to, digits []byte, width int) []byte {
	to = append(to, zeros[:max(width-len(digits), 0)]...)
	return append(to, digits...)
}

// checkPosition returns an error if p is not a position of this backend.
func checkPosition(p string) error {
	ok := len(p) == positionLen && p[milliDigits] == '-'
	for i := 0; ok && i < len(p); i++ {
		ok = i == milliDigits || '0' <= p[i] && p[i] <= '9'
	}
	if ok { // there is no id above 2⁶⁴−1
		_, err := strconv.ParseUint(p[milliDigits+1:], 10, 64)
		ok = err == nil
	}
	if !ok {
		return fmt.Errorf("%.50q is not a position in a stream", p)
	}
	return nil
}
