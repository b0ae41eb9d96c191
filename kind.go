package eventbus

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// A kind says which events a member of a group handles, if a [Topic] has added the member.
type kind struct {
	value reflect.Type // nil: the member may handle any event
	typ   string       // Topic.Type
}

func kindOf[T any](t Topic[T]) kind { return kind{reflect.TypeFor[T](), t.Type} }

func (k kind) String() string {
	if k.typ == "" {
		return k.value.String()
	}
	return fmt.Sprintf("%v of type %q", k.value, k.typ)
}

// subscribe adds m to its group, unless the group has a member of another kind on this bus.
func (b *Bus) subscribe(ctx context.Context, m member) (*Subscription, error) {
	if m.o.kind == (kind{}) || m.o.Group == EachInstance {
		return m.addTo(ctx, b)
	}
	topics, err := m.o.topics(m.topic)
	if err != nil {
		return nil, err
	}
	typed, err := b.kinds.add(topics, m.o.Group, m.o.kind)
	if err != nil {
		return nil, err
	}
	s, err := m.addTo(ctx, b)
	b.kinds.began(typed, s)
	return s, err
}

// kinds has the members of groups that have a kind. Its methods are safe for concurrent use.
type kinds struct {
	mu      sync.Mutex
	members []*typedMember
}

type typedMember struct {
	topics topics
	group  string
	kind   kind
	done   <-chan struct{} // closed when the subscription has ended; nil while it begins
}

// add adds a member, unless its group has a member of another kind for a topic of both.
func (k *kinds) add(topics topics, group string, of kind) (*typedMember, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.members = slices.DeleteFunc(k.members, (*typedMember).ended)
	for _, m := range k.members {
		if m.topics.overlap(topics) && m.group == group && m.kind != of {
			return nil, &FieldError{Field: "SubscribeOptions.Group", Reason: fmt.Sprintf(
				"is %q, whose member on this bus handles %v in %s, not %v: a group shares its events among all members; subscribe once with ByType, or give each type a group",
				group, m.kind, topics, of)}
		}
	}
	m := &typedMember{topics: topics, group: group, kind: of}
	k.members = append(k.members, m)
	return m, nil
}

func (m *typedMember) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// began records the subscription of m. If s is nil, the subscription failed, and m is removed.
func (k *kinds) began(m *typedMember, s *Subscription) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s != nil {
		m.done = s.Done()
		return
	}
	k.members = slices.DeleteFunc(k.members, func(other *typedMember) bool { return other == m })
}
