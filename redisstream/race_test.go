//go:build race

package redisstream_test

const raceEnabled = true
