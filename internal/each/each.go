// Package each names the groups of subscriptions with eventbus.EachInstance.
package each

import (
	"crypto/rand"
	"strings"
)

// Group is the value of eventbus.EachInstance.
const Group = "(each)"

const prefix = "each-"

// New returns a new random group name.
func New() string { return prefix + strings.ToLower(rand.Text()) }

// Label returns [Group] for names made by New, and any other name unchanged, so that a metric has
// one series for all instances instead of another one after each restart.
func Label(group string) string {
	const random = 26 // bytes of rand.Text
	if len(group) == len(prefix)+random && strings.HasPrefix(group, prefix) {
		return Group
	}
	return group
}
