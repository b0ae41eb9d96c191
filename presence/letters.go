package presence

import (
	"cmp"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

// LettersOf returns the dead-letter topic of a group, as announced by one of its members,
// preferably one that is not silent. If none names a topic, or the group discards its dead letters,
// it is the default of a subscription: the topic with ".dlq". If the topic itself ends with that,
// there is no default, and the result is empty.
func LettersOf(all []Process, topic, group string) string {
	last := ""
	for i := range all {
		for j := range all[i].Subscriptions {
			s := &all[i].Subscriptions[j]
			name := s.Settings["DeadLetter"]
			if s.Group != group || !s.Reads(topic) || name == "" {
				continue
			}
			if backend.CheckName(name) != nil { // a text that stands for the default, or for none
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

// EventAt returns the failing event at a position of a topic, which may be a partition, as
// announced by a member of the group.
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
