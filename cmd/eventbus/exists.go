package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/internal/nearest"
	"github.com/seed41896749/eventbus/internal/operator"
)

// requireLetters returns an error if topic exists, and its first event is no dead letter.
func requireLetters(ctx context.Context, b backend.Backend, topic string) error {
	all, err := operator.Topics(ctx, b)
	if err != nil {
		return err
	}
	reader, ok := backend.As[backend.Reader](b)
	if !ok {
		return nil // the command needs a Reader, and says so
	}
	first, _ := reader.Read(ctx, topic, "", 1) // the command meets the same error
	if len(first) == 0 {
		return nil
	}
	event := eventbus.EventOf(&first[0])
	if _, is := eventbus.DeadLetterOf(&event); is {
		return nil
	}
	hint := ""
	if slices.Contains(all, topic+".dlq") {
		hint = "; did you mean " + topic + ".dlq?"
	}
	return fmt.Errorf("%s is no dead-letter topic: its first event is no dead letter%s", topic, hint)
}

// requireGroup returns an error if t has dead letters, but neither they nor the topics of
// their events have this group.
func requireGroup(ctx context.Context, b backend.Backend, t *deadletter.Topic, group string) error {
	for _, err := range t.All(ctx, deadletter.Filter{Group: group}) {
		return err // there is one
	}
	classes, err := t.Classes(ctx, deadletter.Filter{})
	var groups []string
	for _, c := range classes {
		groups = append(groups, c.Group)
		if admin, ok := backend.As[backend.Admin](b); ok {
			some, _ := admin.Groups(ctx, c.Topic) // without its groups, the hint is shorter
			groups = append(groups, some...)
		}
	}
	if err != nil || len(groups) == 0 || slices.Contains(groups, group) {
		return err
	}
	return fmt.Errorf("no dead letter is of the group %q%s", group, nearest.Hint("%s", group, groups))
}
