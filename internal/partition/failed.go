package partition

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/seed41896749/eventbus/backend"
)

// MostFailed is the greatest number of failed keys that an owner hands on.
const MostFailed = 1000

// FailedKeys are the keys of a partition of which an event has failed for good, as its owner in a
// group knows them. Each has a message in the topic of failed keys, so that the next owner knows it
// too. The methods are safe for concurrent use.
type FailedKeys struct {
	backend   backend.Backend
	topic     string // of failed keys
	group     string
	partition int

	mu  sync.Mutex
	all map[string][]string // positions of the messages, by key; none: the first is being stored
}

// A failedKey is the payload of a message in the topic of failed keys.
type failedKey struct {
	Group     string `json:"group"`
	Partition int    `json:"partition"`
	Key       string `json:"key"`
}

// ReadFailed returns the failed keys of a partition that earlier owners have stored.
func ReadFailed(ctx context.Context, b backend.Backend, topic, group string, partition int) (*FailedKeys, error) {
	k := &FailedKeys{backend: b, topic: FailedTopic(topic), group: group, partition: partition, all: map[string][]string{}}
	for after := backend.StartEarliest; ; {
		ms, err := backend.Read(ctx, b, k.topic, after, mostNotes)
		if errors.Is(err, backend.ErrGone) || err == nil && len(ms) == 0 {
			return k, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range ms {
			k.note(&ms[i])
		}
		after = backend.StartAfter(ms[len(ms)-1].Position)
	}
}

// note notes the key of m, if it is of the partition and the group.
func (k *FailedKeys) note(m *backend.Message) {
	var f failedKey
	if json.Unmarshal(m.Payload, &f) != nil || f.Group != k.group || f.Partition != k.partition {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all[f.Key] = append(k.all[f.Key], strings.Clone(m.Position))
}

// Keys returns the keys, sorted.
func (k *FailedKeys) Keys() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(maps.Keys(k.all))
}

// Message returns the message that hands key on. It returns nil for a key that has a message,
// and full if there are as many keys as an owner hands on.
func (k *FailedKeys) Message(key string) (m *backend.Message, full bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	positions, has := k.all[key]
	if len(positions) > 0 {
		return nil, false
	}
	if !has && len(k.all) >= MostFailed {
		return nil, true
	}
	k.all[key] = nil
	payload, err := json.Marshal(failedKey{k.group, k.partition, key})
	if err != nil {
		return nil, false // a struct of texts has none
	}
	return &backend.Message{Topic: k.topic, ID: "failed", Payload: payload}, false
}

// Stored notes that m, which Message has returned, is stored.
func (k *FailedKeys) Stored(m *backend.Message) { k.note(m) }

// Release removes the messages of key, so that the next owner does not know it.
func (k *FailedKeys) Release(ctx context.Context, key string) error {
	k.mu.Lock()
	positions := k.all[key]
	k.mu.Unlock()
	if len(positions) == 0 {
		return nil
	}
	if err := backend.Remove(ctx, k.backend, k.topic, positions); err != nil && !errors.Is(err, backend.ErrGone) {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all[key] = k.all[key][len(positions):]; len(k.all[key]) == 0 {
		delete(k.all, key)
	}
	return nil
}
