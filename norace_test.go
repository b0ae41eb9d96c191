//go:build !race

package eventbus_test

const raceEnabled = false
