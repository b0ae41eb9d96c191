package law

import (
	"fmt"
	"slices"
	"time"
)

// listed waits until a list is as ok wants it, for the time of Grace. want describes that.
func (e *Env) listed(what string, list func() ([]string, error), ok func([]string) bool, want string) {
	e.Helper()
	for end := time.Now().Add(e.Grace); ; time.Sleep(Pause) {
		now := time.Now()
		names, err := list()
		e.Verb(err)
		if ok(names) {
			return
		}
		if !now.Before(end) {
			e.Failf("got %s %q, want %s", what, names, want)
		}
	}
}

// AwaitTopics waits until the list of topics is as ok wants it.
func (e *Env) AwaitTopics(ok func([]string) bool, want string) {
	e.Helper()
	e.listed("topics", func() ([]string, error) { return e.Verbs().Topics(e.Context()) }, ok, want)
}

// AwaitGroups waits until a topic has these groups, sorted.
func (e *Env) AwaitGroups(topic string, want ...string) {
	e.Helper()
	e.listed("groups of "+topic, func() ([]string, error) { return e.Verbs().Groups(e.Context(), topic) },
		func(names []string) bool { return slices.Equal(names, want) }, fmt.Sprintf("%q", want))
}

// AwaitGroup waits until the topic has the group, or does not have it.
func (e *Env) AwaitGroup(group string, want bool, why string) {
	e.Helper()
	e.listed("groups", func() ([]string, error) { return e.Verbs().Groups(e.Context(), Topic) },
		func(names []string) bool { return slices.Contains(names, group) == want }, fmt.Sprintf("%s among them: %v: %s", group, want, why))
}
