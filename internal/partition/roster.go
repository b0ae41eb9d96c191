package partition

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

// A roster is the members' topic, as one member of a group sees it. The topic has no group: each
// member removes its note before when it has written a newer one. It is used by one goroutine.
type roster struct {
	backend   backend.Backend
	topic     string // the members' topic
	group, id string
	name      string   // of the process, for operators
	own       []string // positions of own notes
}

const mostNotes = 4096 // of one look

// write stores a note of the partitions that the member owns, and removes the one before. A member
// that waits may not take partitions yet.
func (r *roster) write(ctx context.Context, owned []int, waits bool) error {
	payload, err := json.Marshal(note{Member: r.id, Name: r.name, Group: r.group, Owned: Ranges(owned), Waits: waits})
	if err != nil {
		return err
	}
	m := &backend.Message{Topic: r.topic, ID: r.id, Payload: payload}
	if err := backend.ErrorAt(r.backend.Publish(ctx, []*backend.Message{m}), 0); err != nil {
		return err
	}
	before := r.own
	r.own = append(slices.Clone(before), m.Position)
	if len(before) == 0 {
		return nil
	}
	if err := r.remove(ctx, before); err != nil {
		return err
	}
	r.own = []string{m.Position}
	return nil
}

// read returns the notes of all members of all groups.
func (r *roster) read(ctx context.Context) (notes []note, err error) {
	ms, err := backend.Read(ctx, r.backend, r.topic, backend.StartEarliest, mostNotes)
	if errors.Is(err, backend.ErrGone) {
		return nil, nil
	}
	for i := range ms {
		var n note
		if json.Unmarshal(ms[i].Payload, &n) != nil || n.Member == "" {
			continue // of another program
		}
		n.position = strings.Clone(ms[i].Position)
		notes = append(notes, n)
	}
	return notes, err
}

func (r *roster) remove(ctx context.Context, positions []string) error {
	err := backend.Remove(ctx, r.backend, r.topic, positions)
	if errors.Is(err, backend.ErrGone) {
		return nil
	}
	return err
}

// leave removes the own notes, so that the others know at once that the member has left.
func (r *roster) leave(ctx context.Context) error {
	if len(r.own) == 0 {
		return nil
	}
	return r.remove(ctx, r.own)
}
