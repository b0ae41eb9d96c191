package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Pauser = (*Backend)(nil)

// pauseKey is the metadata key of a consumer under which the reason of a pause is stored, as a
// pauseRecord in JSON.
const pauseKey = "eventbus.pause"

// A pauseRecord belongs to the pause that ends at Until. A pause with another end was made by
// another program, such as the nats command.
type pauseRecord struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
}

// levelKey is the metadata key under which a server reports its API level. Servers before 2.11
// have none, and cannot pause consumers.
const levelKey = "_nats.level"

// pauseOf returns the current pause of a consumer, or the zero Pause.
func pauseOf(c *jetstream.ConsumerInfo) (p backend.Pause) {
	if c.PauseRemaining <= 0 || c.Config.PauseUntil == nil {
		return p
	}
	p.Until, p.Since = c.Config.PauseUntil.UTC(), c.TimeStamp
	var w pauseRecord
	if err := json.Unmarshal([]byte(c.Config.Metadata[pauseKey]), &w); err == nil && w.Until.Equal(p.Until) {
		p.Since, p.By, p.Why = w.Since, w.By, w.Why
	}
	if !p.Until.Before(forever) {
		p.Until = time.Time{}
	}
	return p
}

// Pause implements [backend.Pauser]. It needs nats-server 2.11.
func (b *Backend) Pause(ctx context.Context, topic, group string, p backend.Pause) error {
	if err := p.Check(); err != nil {
		return failure(b.closed.Load(), "pause", topic+"/"+group, err)
	}
	return b.call(ctx, "pause", topic+"/"+group, effective, func(ctx context.Context) error {
		return b.setPause(ctx, topic, group, p)
	})
}

// Resume implements [backend.Pauser].
func (b *Backend) Resume(ctx context.Context, topic, group string) error {
	return b.call(ctx, "resume", topic+"/"+group, effective, func(ctx context.Context) error {
		return b.setPause(ctx, topic, group, backend.Pause{Until: epoch})
	})
}

// Paused implements [backend.Pauser].
func (b *Backend) Paused(ctx context.Context, topic, group string) (backend.Pause, error) {
	return run(ctx, b, "ask for the pause of", topic+"/"+group, harmless, func(ctx context.Context) (backend.Pause, error) {
		info, err := b.pausable(ctx, b.locate(topic), group)
		if err != nil {
			return backend.Pause{}, err
		}
		return pauseOf(info), nil
	})
}

// pausable asks for the consumer of a group. It returns an error if the server cannot pause
// consumers.
func (a *api) pausable(ctx context.Context, loc *location, group string) (*jetstream.ConsumerInfo, error) {
	info := new(jetstream.ConsumerInfo)
	err := a.ask(ctx, consumerInfo(loc, group), nil, info)
	if err == nil && info.Config.Metadata[levelKey] == "" {
		err = fmt.Errorf("%w: pausing groups needs nats-server 2.11 or later", errors.ErrUnsupported)
	}
	return info, err
}

// setPause changes the pause of a group, and ends it if p.Until has passed. It first stores the
// record of the pause, which has no meaning until the consumer is paused.
func (b *Backend) setPause(ctx context.Context, topic, group string, p backend.Pause) error {
	loc := b.locate(topic)
	info, err := b.pausable(ctx, loc, group)
	if err != nil {
		return err
	}
	c := info.Config
	c.Metadata = maps.Clone(c.Metadata)
	p.Since = info.TimeStamp
	until := p.Until.UTC()
	if p.Until.IsZero() || until.After(forever) {
		until = forever
	}
	if until.After(p.Since) {
		text, err := json.Marshal(pauseRecord{p.Since, until, p.By, p.Why})
		if err != nil {
			return err
		}
		c.Metadata[pauseKey], c.PauseUntil = string(text), &until
	} else {
		until, p, c.PauseUntil = time.Time{}, backend.Pause{}, nil
		delete(c.Metadata, pauseKey)
	}
	if c.Metadata[pauseKey] != info.Config.Metadata[pauseKey] {
		if err := b.putConsumer(ctx, loc, c, "update", nil); err != nil { // a single server ignores PauseUntil in this request
			return err
		}
	}
	request := struct {
		Until time.Time `json:"pause_until,omitzero"`
	}{until}
	if err := b.ask(ctx, "CONSUMER.PAUSE."+loc.stream+"."+loc.consumer(group), request, nil); err != nil {
		return err
	}
	for _, s := range b.members.of(topic, group) {
		s.pause.update(p)
	}
	return nil
}

// A pauseState is what a member has learned about its group's pause.
type pauseState struct {
	mu      sync.Mutex
	pause   backend.Pause // zero if the group is not paused
	updated time.Time     // when the member last saw the state of the consumer
}

const (
	pausedPoll = time.Second     // how often to ask for the end of a pause, at most
	idlePoll   = 7 * time.Second // how often to ask whether there is a pause, at most; Maintain sees it too, and runs more often
)

// update records the current pause of the group, which may be zero.
func (p *pauseState) update(now backend.Pause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause, p.updated = now, time.Now()
}

// current returns the time since the last update, and an error if the group is paused.
func (p *pauseState) current() (since time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since = time.Since(p.updated); !p.pause.Since.IsZero() {
		err = &backend.PausedError{Pause: p.pause}
	}
	return since, err
}

// check returns an error if the group is paused. It asks the server for the end of a pause at
// most once a second. idle is set after a Receive without messages; then check also asks
// whether there is a new pause, if the last answer is long ago. If the server does not answer,
// the next pull finds out why.
func (p *pauseState) check(ctx context.Context, s *source, idle bool) error {
	since, err := p.current()
	if err != nil && since < pausedPoll || err == nil && (!idle || since < idlePoll) {
		return err
	}
	if _, err := s.info(ctx); err != nil {
		return nil //nolint:nilerr // see above
	}
	_, err = p.current()
	return err
}
