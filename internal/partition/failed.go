package partition

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
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
	number    int    // of partitions
	nonce     string // begins the IDs of own messages, and their numbers follow

	mu   sync.Mutex
	keys map[string]bool // false: its message is being stored
	last int             // number of the last own message
}

// A failedKey is the payload of a message in the topic of failed keys.
type failedKey struct {
	Group string `json:"group"`
	Key   string `json:"key"`
}

// ReadFailed returns the failed keys that earlier owners have stored of a partition, of number ones.
func ReadFailed(ctx context.Context, b backend.Backend, topic, group string, partition, number int) (*FailedKeys, error) {
	k := &FailedKeys{backend: b, topic: FailedTopic(topic), group: group, partition: partition, number: number, nonce: rand.Text(), keys: map[string]bool{}}
	return k, k.each(ctx, func(_ *backend.Message, key string) { k.keys[strings.Clone(key)] = true })
}

// each calls f with the messages of the group and the partition, which are lent.
func (k *FailedKeys) each(ctx context.Context, f func(m *backend.Message, key string)) error {
	for after := backend.StartEarliest; ; {
		ms, err := backend.Read(ctx, k.backend, k.topic, after, mostNotes)
		if errors.Is(err, backend.ErrGone) || err == nil && len(ms) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range ms {
			var p failedKey
			if json.Unmarshal(ms[i].Payload, &p) == nil && p.Group == k.group && Of(p.Key, k.number) == k.partition {
				f(&ms[i], p.Key)
			}
		}
		after = backend.StartAfter(ms[len(ms)-1].Position)
	}
}

// Keys returns the stored keys, sorted.
func (k *FailedKeys) Keys() (keys []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, stored := range k.keys {
		if stored {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Message returns the message that hands key on. The caller stores it, and calls Stored. Message
// returns nil for a key that has a message, and full if there are as many keys as an owner hands on.
func (k *FailedKeys) Message(key string) (m *backend.Message, full bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, has := k.keys[key]; has {
		return nil, false
	}
	if len(k.keys) >= MostFailed {
		return nil, true
	}
	payload, err := json.Marshal(failedKey{k.group, key})
	if err != nil {
		return nil, false // a struct of texts has none
	}
	k.keys[strings.Clone(key)] = false
	k.last++
	return &backend.Message{Topic: k.topic, ID: k.nonce + "-" + strconv.Itoa(k.last), Payload: payload}, false
}

// Stored notes whether the message of key, which Message has returned, is stored. If it may not be,
// the next Message returns another one.
func (k *FailedKeys) Stored(key string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ok {
		k.keys[key] = true
	} else {
		delete(k.keys, key)
	}
}

// Release forgets key. It returns nil if the key has no message, and otherwise a function that
// removes its messages, so that the next owner does not know it. A message that is made after
// Release stays. The function may be called again until it succeeds.
func (k *FailedKeys) Release(key string) (remove func(context.Context) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, has := k.keys[key]; !has {
		return nil
	}
	delete(k.keys, key)
	until := k.last
	return func(ctx context.Context) error { return k.remove(ctx, key, until) }
}

// remove removes the messages of key, except own ones after the number until.
func (k *FailedKeys) remove(ctx context.Context, key string, until int) error {
	var positions []string
	err := k.each(ctx, func(m *backend.Message, of string) {
		number, own := strings.CutPrefix(m.ID, k.nonce+"-")
		if n, err := strconv.Atoi(number); of == key && (!own || err != nil || n <= until) {
			positions = append(positions, strings.Clone(m.Position))
		}
	})
	if err != nil || len(positions) == 0 {
		return err
	}
	if err := backend.Remove(ctx, k.backend, k.topic, positions); !errors.Is(err, backend.ErrGone) {
		return err
	}
	return nil
}
