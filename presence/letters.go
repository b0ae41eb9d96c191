package presence

import (
	"cmp"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

// LettersOf returns the topic for the dead letters of a group, as a member of it announces: one that is not silent, if there
// is one. If none names a topic, or the group discards its dead letters, it is the default of a subscription: the topic with
// ".dlq". If the topic itself has this ending, there is no default, and the result is empty.
func LettersOf(all []Process, topic, group string) string {
	last := ""
	for i := range all {
		for j := range all[i].Subscriptions {
			s := &all[i].Subscriptions[j]
			name := s.Settings["DeadLetter"]
			if s.Group != group || !s.Reads(topic) || name == "" {
				continue
			}
			if backend.CheckName(name) != nil { // it says that it is the default, or none
				name = ""
			}
			if !all[i].Silent {
				return cmp.Or(name, defaultLetters(topic))
			}
			last = name
		}
	}
	return cmp.Or(last, defaultLetters(topic))
}

func defaultLetters(topic string) string {
	if strings.HasSuffix(topic, lettersSuffix) {
		return ""
	}
	return topic + lettersSuffix
}

// EventAt returns the event at a position of a topic, which may be a partition, that fails in a member of
// a group, as the member announces.
func EventAt(all []Process, topic, group, position string) (Event, bool) {
	for i := range all {
		for j := range all[i].Subscriptions {
			s := &all[i].Subscriptions[j]
			for _, e := range s.Events {
				if s.Group == group && e.Topic == topic && e.Position == position {
					return e, true
				}
			}
		}
	}
	return Event{}, false
}

const lettersSuffix = ".dlq" // see eventbus.SubscribeOptions.DeadLetter
