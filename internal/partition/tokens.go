package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// tokens is the owners' topic, as one member of a group sees it.
type tokens struct {
	backend backend.Backend
	topic   string // the owners' topic
	number  int
	first   []string // positions of the tokens, by partition
	source  backend.Source
	delayer backend.Delayer
	keeper  backend.Extender
}

// A token is the delivery of a token.
type token struct {
	backend.Delivery
	of *tokens
}

const tokenPrefix = "partition-"

// openTokens attaches to the owners' topic, and creates the tokens that it does not have.
func openTokens(ctx context.Context, b backend.Backend, topic, group string, number int, lease time.Duration, notify func(backend.Notice)) (*tokens, error) {
	t := &tokens{backend: b, topic: OwnersTopic(topic), number: number}
	var err error
	t.source, err = b.Attach(ctx, backend.Config{
		Topic: t.topic, Group: group, Start: backend.StartEarliest, Lease: lease, MaxInFlight: 2 * number, Notify: notify,
	})
	if err != nil {
		return nil, err
	}
	var delays, extends bool
	t.delayer, delays = backend.As[backend.Delayer](t.source)
	t.keeper, extends = backend.As[backend.Extender](t.source)
	if !delays || !extends {
		err = fmt.Errorf("partitions need a backend that can extend leases and give messages back: %w", errors.ErrUnsupported)
	} else {
		err = t.create(ctx)
	}
	if err != nil {
		_ = t.source.Close()
		return nil, err
	}
	return t, nil
}

// create publishes a token of each partition that has none. Several members may do it at the same
// time: the first token of a partition counts.
func (t *tokens) create(ctx context.Context) error {
	if err := t.read(ctx); err != nil {
		return err
	}
	once := backend.LimitsOf(t.backend).OnceWindow > 0
	var ms []*backend.Message
	for p, position := range t.first {
		if position == "" {
			name := tokenPrefix + strconv.Itoa(p)
			ms = append(ms, &backend.Message{Topic: t.topic, ID: name, Once: once, OnceKey: name})
		}
	}
	most := max(backend.LimitsOf(t.backend).Batch, 0)
	if most == 0 {
		most = len(ms)
	}
	for some := range slices.Chunk(ms, max(most, 1)) {
		if err := patiently(ctx, func(ctx context.Context) error { return t.backend.Publish(ctx, some) }); err != nil {
			return err
		}
	}
	if len(ms) == 0 {
		return nil
	}
	if err := t.read(ctx); err != nil {
		return err
	}
	if slices.Contains(t.first, "") {
		return fmt.Errorf("%w: a token that was stored is missing in %s", backend.ErrUnknownOutcome, t.topic)
	}
	return nil
}

// read finds the first token of each partition.
func (t *tokens) read(ctx context.Context) error {
	t.first = make([]string, t.number)
	for after, missing := backend.StartEarliest, t.number; missing > 0; {
		ms, err := backend.Read(ctx, t.backend, t.topic, after, t.number)
		if errors.Is(err, backend.ErrGone) || err == nil && len(ms) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		for i := range ms {
			if p := t.partition(&ms[i]); p >= 0 && t.first[p] == "" {
				t.first[p] = strings.Clone(ms[i].Position)
				missing--
			}
		}
		after = backend.StartAfter(ms[len(ms)-1].Position)
	}
	return nil
}

// partition returns the partition of the token m; -1: it is no token.
func (t *tokens) partition(m *backend.Message) int {
	if p := tokenOf(m); p < t.number {
		return p
	}
	return -1
}

// unused reports whether m is the token of a partition that is out of use, since the topic got fewer
// partitions.
func (t *tokens) unused(m *backend.Message) bool { return tokenOf(m) >= t.number }

// tokenOf returns the partition whose token m is or was; -1: it is no token.
func tokenOf(m *backend.Message) int {
	text, ok := strings.CutPrefix(m.ID, tokenPrefix)
	p, err := strconv.Atoi(text)
	if !ok || err != nil || p < 0 || p >= Most {
		return -1
	}
	return p
}

// receive waits for at most most tokens, and acknowledges messages that are none. It does not settle a
// token of a partition that is out of use.
func (t *tokens) receive(ctx context.Context, most int, lease time.Duration) (claims []*Claim, err error) {
	base := time.Now()
	ds, err := t.source.Receive(ctx, most, 0)
	var spare []backend.Delivery
	for _, d := range ds { // lent until the next Receive
		d.Position, d.ID = strings.Clone(d.Position), strings.Clone(d.ID)
		p := t.partition(&d.Message)
		if p < 0 && t.unused(&d.Message) {
			continue // a change of the number may use it again
		}
		if p < 0 || d.Position != t.first[p] {
			spare = append(spare, d)
			continue
		}
		c := NewClaim(p, max(d.Attempt, 1), lease, base)
		c.token = token{d, t}
		claims = append(claims, c)
	}
	if len(spare) > 0 {
		if e := t.source.Ack(ctx, backend.Lend(spare)); e != nil && err == nil {
			err = e
		}
	}
	return claims, err
}

// extend extends the leases of the tokens of claims. lost has the claims whose token another member
// has.
func (t *tokens) extend(ctx context.Context, claims []*Claim) (lost []*Claim, err error) {
	base := time.Now()
	most := len(claims)
	if b := backend.LimitsOf(t.backend).Batch; b > 0 {
		most = min(most, b)
	}
	for some := range slices.Chunk(claims, max(most, 1)) {
		ds := make([]*backend.Delivery, len(some))
		for i, c := range some {
			ds[i] = &c.token.Delivery
		}
		failure := t.keeper.Extend(ctx, ds)
		for i, c := range some {
			switch e := backend.ErrorAt(failure, i); {
			case e == nil:
				c.extended(base)
			case errors.Is(e, backend.ErrLeaseLost), errors.Is(e, backend.ErrGone):
				lost = append(lost, c)
			default:
				err = e
			}
		}
	}
	return lost, err
}

// giveBack makes the token of c due for every member.
func (t *tokens) giveBack(ctx context.Context, c *Claim) error {
	return backend.ErrorAt(t.delayer.Delay(ctx, []backend.Delayed{{Delivery: c.token.Delivery}}), 0)
}
