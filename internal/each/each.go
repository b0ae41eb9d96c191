// Package each names the groups of subscriptions that have a group of their own.
package each

import (
	"crypto/rand"
	"strings"
)

// Group is the value of eventbus.EachInstance.
const Group = "(each)"

const prefix = "each-"

// New returns a new name of a group.
func New() string { return prefix + strings.ToLower(rand.Text()) }

// Label returns [Group] for a name that New has returned, and any other name unchanged. So a
// metric has one series for all instances, and not one more after each restart.
func Label(group string) string {
	const random = 26 // bytes of rand.Text
	if len(group) == len(prefix)+random && strings.HasPrefix(group, prefix) {
		return Group
	}
	return group
}
