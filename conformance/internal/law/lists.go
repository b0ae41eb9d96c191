package law

import (
	"fmt"
	"slices"
	"time"
)

// awaitList waits, for at most Grace, until ok returns true for the list. want describes that list.
func (e *Env) awaitList(what string, list func() ([]string, error), ok func([]string) bool, want string) {
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

// AwaitTopics waits until ok returns true for the list of topics.
func (e *Env) AwaitTopics(ok func([]string) bool, want string) {
	e.Helper()
	e.awaitList("topics", func() ([]string, error) { return e.Verbs().Topics(e.Context()) }, ok, want)
}

// AwaitGroups waits until a topic has these groups, sorted.
func (e *Env) AwaitGroups(topic string, want ...string) {
	e.Helper()
	e.awaitList("groups of "+topic, func() ([]string, error) { return e.Verbs().Groups(e.Context(), topic) },
		func(names []string) bool { return slices.Equal(names, want) }, fmt.Sprintf("%q", want))
}

// AwaitGroup waits until the topic has the group, or does not have it.
func (e *Env) AwaitGroup(group string, want bool, why string) {
	e.Helper()
	e.awaitList("groups", func() ([]string, error) { return e.Verbs().Groups(e.Context(), Topic) },
		func(names []string) bool { return slices.Contains(names, group) == want }, fmt.Sprintf("%s among them: %v: %s", group, want, why))
}
