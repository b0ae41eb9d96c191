package faults

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// ofBackends returns the faults of backends, by the operation that they harm.
func ofBackends() []Fault {
	return slices.Concat(
		publishFaults, onceFaults, positionFaults, receiveFaults, attachFaults, settleFaults, delayFaults, fenceFaults, instanceFaults,
		readFaults, operatorFaults, settingFaults, statsFaults, maintainFaults, closeFaults,
	)
}

var publishFaults = []Fault{
	{Name: "publish-loses", Breaks: "most messages are stored", On: []Op{Publish}, New: func() effect {
		var n atomic.Int64
		return before(func(c *Call) {
			c.Messages = slices.DeleteFunc(c.Messages, func(*backend.Message) bool { return n.Add(1)%29 == 0 })
		})
	}},
	{Name: "publish-one-topic", Breaks: "a batch goes to the topic of its first message", On: []Op{Publish}, Do: message1(func(first, m *backend.Message) { m.Topic = first.Topic })},
	{Name: "publish-cleans", Breaks: "IDs, keys and headers are one line without outer spaces, and payloads have up to 32 KiB", On: []Op{Publish}, Do: message(func(m *backend.Message) {
		m.ID, m.Key = strings.Join(strings.Fields(m.ID), " "), strings.Join(strings.Fields(m.Key), " ")
		m.Payload, m.Headers = m.Payload[:min(len(m.Payload), 32<<10)], slices.Clone(m.Headers)
		for i := range m.Headers {
			m.Headers[i].Value = strings.TrimSpace(m.Headers[i].Value)
		}
	})},
	{Name: "publish-hides-failures", Driver: true, Breaks: "a publisher need not care about errors", On: []Op{Publish}, Do: after(func(c *Call) { c.Err = nil })},
	{Name: "lent-memory-kept", Driver: true, Breaks: "what is lent to a call belongs to the driver", On: []Op{Publish, Ack, Receive}, New: func() effect {
		var messages sync.Map // by position: the message as it was lent
		var mu sync.Mutex
		acked := map[*source][]*backend.Delivery{}
		return func(c *Call) {
			mu.Lock()
			if c.Op == Ack {
				acked[c.Source] = append(acked[c.Source], c.Acked...)
				mu.Unlock()
				return
			}
			if c.Op == Receive {
				_ = c.Source.Source.Ack(c.Ctx, acked[c.Source]) // some have changed
				acked[c.Source] = nil
			}
			mu.Unlock()
			c.Next()
			for _, m := range c.Messages {
				messages.Store(m.Position, &backend.Message{Payload: m.Payload, Headers: m.Headers})
			}
			for i, d := range c.Deliveries {
				if m, ok := messages.Load(d.Position); ok {
					c.Deliveries[i].Payload, c.Deliveries[i].Headers = m.(*backend.Message).Payload, m.(*backend.Message).Headers
				}
			}
		}
	}},
	{Name: "batches-of-1000", Breaks: "a call has at most 1,000 items", On: []Op{Publish, Ack, Remove}, Do: func(c *Call) {
		if max(len(c.Messages), len(c.Acked), len(c.Positions)) > 1000 {
			c.Err = backend.ErrRefused
			return
		}
		c.Next()
	}},
	{Name: "batches-fail-as-one", Breaks: "a batch fails if one of its items does", On: []Op{Publish, Delay, Extend}, Do: after(func(c *Call) {
		if all, ok := errors.AsType[backend.BatchError](c.Err); ok {
			c.Err = errors.Join(all.Unwrap()...)
		}
	})},
	{Name: "names-fold", Breaks: "names that differ in case or punctuation are one name", On: []Op{Publish, Attach, Receive}, New: func() effect {
		var asked sync.Map // by folded name: the topic as it was published last
		return func(c *Call) {
			for _, m := range c.Messages {
				topic := m.Topic
				m.Topic = folded(m.Topic)
				asked.Store(m.Topic, topic)
			}
			c.Config.Topic, c.Config.Group = folded(c.Config.Topic), folded(c.Config.Group)
			c.Next()
			for i := range c.Deliveries {
				if topic, ok := asked.Load(c.Deliveries[i].Topic); ok {
					c.Deliveries[i].Topic = topic.(string)
				}
			}
		}
	}},
}

// message1 changes each message of a Publish by the first one.
func message1(change func(first, m *backend.Message)) effect {
	return before(func(c *Call) {
		for _, m := range c.Messages {
			change(c.Messages[0], m)
		}
	})
}

func folded(name string) string {
	return strings.ToLower(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}

var onceFaults = []Fault{
	{Name: "once-ignored", Breaks: "duplicates are the receiver's business", On: []Op{Publish}, Do: plain},
	{Name: "once-for-ever", Breaks: "an ID is unique in all topics and at all times", On: []Op{Publish}, New: func() effect {
		var seen set
		return one(func(c *Call) {
			if m := c.Messages[0]; m.Once && !seen.add(m.ID) {
				m.Duplicate = true
				return
			}
			plain(c)
		})
	}},
	{Name: "once-in-two-steps", Breaks: "an ID is looked up, and then stored", On: []Op{Publish}, New: func() effect {
		var seen set
		return one(func(c *Call) {
			if m := c.Messages[0]; m.Once {
				if seen.has(m.Topic + " " + m.ID) {
					m.Duplicate = true
					return
				}
				time.Sleep(time.Millisecond)
				seen.add(m.Topic + " " + m.ID)
			}
			plain(c)
		})
	}},
	{Name: "once-by-id", Breaks: "Once is about the ID, wanted or not", On: []Op{Publish}, Do: message(func(m *backend.Message) { m.Once, m.OnceKey = true, "" })},
}

var positionFaults = []Fault{
	{Name: "position-restarts", Breaks: "a topic that is recreated begins with the lowest positions", On: []Op{Publish, Receive, Read, Attach, ResetGroup, Remove, DeleteTopic}, New: func() effect {
		var again set
		return func(c *Call) {
			c.Config.Start, c.Start = unmarked(c.Config.Start, again.has(c.Topic)), unmarked(c.Start, again.has(c.Topic))
			for i, p := range c.Positions {
				c.Positions[i] = strings.TrimPrefix(p, "!")
			}
			c.Next()
			if c.Op == DeleteTopic && c.Err == nil {
				again.add(c.Topic)
			}
			if !again.has(c.Topic) {
				return
			}
			for _, m := range c.Messages {
				m.Position = "!" + m.Position
			}
			for i := range c.Deliveries {
				c.Deliveries[i].Position = "!" + c.Deliveries[i].Position
			}
			for i := range c.Page {
				c.Page[i].Position = "!" + c.Page[i].Position
			}
		}
	}},
	{Name: "position-unknown", Breaks: "a position is known to receivers", On: []Op{Publish}, Do: after(func(c *Call) {
		for _, m := range c.Messages {
			m.Position = ""
		}
	})},
}

// unmarked removes the mark of position-restarts from a start. Behind a position without a
// mark, a recreated topic has no message.
func unmarked(s backend.Start, again bool) backend.Start {
	p, ok := s.After()
	switch {
	case ok && strings.HasPrefix(p, "!"):
		return backend.StartAfter(p[1:])
	case ok && again && p != "":
		return backend.StartLatest
	}
	return s
}

var receiveFaults = []Fault{
	{Name: "receive-reverses", Breaks: "the last message comes first", On: []Op{Receive}, Do: after(func(c *Call) { slices.Reverse(c.Deliveries) })},
	{Name: "receive-exceeds", Breaks: "bounds of a Receive are a hint", On: []Op{Receive}, Do: before(func(c *Call) { c.Max, c.MaxBytes = c.Max+1, 0 })},
	{Name: "receive-shares-memory", Breaks: "receivers do not change a message, and get it without its headers the second time", On: []Op{Receive}, New: func() effect {
		var shared sync.Map
		return delivery(func(d *backend.Delivery) {
			m, again := shared.LoadOrStore(d.Topic+d.Position, d.Message)
			if d.Payload = m.(backend.Message).Payload; again {
				d.Key, d.Headers = "", nil
			}
		})
	}},
	{Name: "receive-miscounts", Breaks: "attempts grow", On: []Op{Receive}, Do: delivery(func(d *backend.Delivery) { d.Attempt *= 2 })},
	{Name: "receive-forgets-redelivered", Breaks: "every delivery is the first", On: []Op{Receive}, Do: delivery(func(d *backend.Delivery) { d.Redelivered = false })},
	{Name: "receive-skips-gone", Driver: true, Member: true, Breaks: "a message that cannot be read is none", On: []Op{Receive}, Do: after(func(c *Call) {
		c.Deliveries = slices.DeleteFunc(c.Deliveries, func(d backend.Delivery) bool { return d.Err != nil })
	})},
	{Name: "receive-drops-on-cancel", Breaks: "a Receive that is cancelled returns nothing", On: []Op{Receive}, Do: after(func(c *Call) {
		if time.Sleep(time.Millisecond); c.Ctx.Err() != nil {
			c.Deliveries, c.Err = nil, c.Ctx.Err()
		}
	})},
	{Name: "receive-deaf", Breaks: "a Receive returns when there is a message, whatever its context says", On: []Op{Receive}, Do: func(c *Call) {
		asked := c.Ctx
		ctx, cancel := context.WithTimeout(context.WithoutCancel(asked), c.Config.Lease+2*time.Second)
		defer cancel()
		c.Ctx = ctx
		if c.Next(); len(c.Deliveries) == 0 && asked.Err() != nil {
			c.Err = asked.Err()
		}
	}},
	{Name: "receive-polls", Driver: true, Breaks: "a Receive asks the broker all the time", On: []Op{Receive}, Do: func(c *Call) {
		asked := c.Ctx
		look, cancel := context.WithTimeout(asked, 10*time.Millisecond)
		defer cancel()
		c.Ctx = look
		if c.Next(); asked.Err() == nil && look.Err() != nil {
			c.Err = nil
		}
	}},
	{Name: "receive-in-turn", Breaks: "one member of a group waits, the others after it", On: []Op{Receive}, New: func() effect {
		turn := make(chan struct{}, 1)
		return func(c *Call) {
			select {
			case turn <- struct{}{}:
				time.AfterFunc(c.Config.Lease/10, func() { <-turn })
				c.Next()
			case <-c.Ctx.Done():
				c.Err = c.Ctx.Err()
			}
		}
	}},
	{Name: "receive-counts-lost-as-held", Driver: true, Breaks: "a member holds what it has not settled", On: []Op{Receive, Ack}, New: func() effect {
		var all sync.Map // the number of held messages of each source
		return func(c *Call) {
			n, _ := all.LoadOrStore(c.Source, new(atomic.Int64))
			held := n.(*atomic.Int64)
			if c.Op == Ack {
				held.Add(int64(-len(c.Acked)))
				c.Next()
				return
			}
			if c.Max = min(c.Max, 2*c.Config.MaxInFlight-int(held.Load())); c.Max <= 0 {
				<-c.Ctx.Done()
				c.Err = c.Ctx.Err()
				return
			}
			c.Next()
			held.Add(int64(len(c.Deliveries)))
		}
	}},
	{Name: "calls-ignore-contexts", Driver: true, Breaks: "a call is always made, and its context only has the last word", On: []Op{Publish, Ack}, Do: func(c *Call) {
		asked := c.Ctx
		c.Ctx = context.WithoutCancel(asked)
		if c.Next(); asked.Err() != nil {
			c.Err = asked.Err()
		}
	}},
}

var attachFaults = []Fault{
	{Name: "group-shared", Breaks: "groups share the messages", On: []Op{Attach}, Do: before(func(c *Call) { c.Config.Group = "shared" })},
	{Name: "group-per-member", Breaks: "each member gets every message", On: []Op{Attach}, New: func() effect {
		var n atomic.Int64
		return before(func(c *Call) { c.Config.Group += fmt.Sprint("-", n.Add(1)) })
	}},
	{Name: "start-latest", Breaks: "a group, and a Read from a time, sees what comes after it", On: []Op{Attach, ResetGroup, Read}, Do: before(func(c *Call) {
		if _, ok := c.Start.At(); ok || c.Op != Read {
			c.Config.Start, c.Start = backend.StartLatest, backend.StartLatest
		}
	})},
	{Name: "start-every-time", Breaks: "a member says where its group continues", On: []Op{Attach}, Do: before(func(c *Call) {
		_ = c.Store.Store.ResetGroup(c.Ctx, c.Topic, c.Group, c.Config.Start) // it may not exist
	})},
	{Name: "attach-later", Driver: true, Breaks: "a member attaches when it is first used", On: []Op{Attach, Declare}, Do: func(c *Call) {
		if c.Op == Declare {
			return
		}
		call := *c
		c.Source = &source{store: c.Store, config: c.Config, asked: c.Config, Source: &lateSource{attach: func(ctx context.Context) (backend.Source, error) {
			call.Ctx = ctx
			call.Next()
			return call.Source, call.Err
		}}}
	}},
	{Name: "attach-creates-first", Breaks: "a group is created before its config is looked at", On: []Op{Attach}, Do: after(func(c *Call) {
		if errors.Is(c.Err, backend.ErrRefused) {
			c.Config.Start, c.Config.Lease = backend.StartLatest, time.Minute
			if src, err := c.Store.Store.Attach(c.Ctx, c.Config); err == nil {
				_ = src.Close()
			}
		}
	})},
	{Name: "lease-long", Breaks: "a lease is longer than asked for", On: []Op{Attach}, Do: before(func(c *Call) { c.Config.Lease *= 6 })},
	{Name: "lease-of-the-group", Breaks: "a group has the lease of its most impatient member", On: []Op{Attach, Receive}, New: func() effect {
		var mu sync.Mutex
		var shortest *source
		return after(func(c *Call) {
			mu.Lock()
			if c.Op == Attach && c.Err == nil && (shortest == nil || c.Config.Lease < shortest.config.Lease) {
				shortest = c.Source
			}
			s := shortest
			mu.Unlock()
			if c.Op == Receive && len(c.Deliveries) > 0 {
				c.Err = errors.Join(c.Err, s.Source.(backend.Extender).Extend(c.Ctx, backend.Lend(c.Deliveries)))
			}
		})
	}},
}

// A lateSource attaches with its first Receive.
type lateSource struct {
	attach func(context.Context) (backend.Source, error)
	mu     sync.Mutex
	src    backend.Source
}

func (l *lateSource) source() backend.Source {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.src
}

func (l *lateSource) Receive(ctx context.Context, limit int, maxBytes int64) ([]backend.Delivery, error) {
	src := l.source()
	if src == nil {
		var err error
		if src, err = l.attach(ctx); err != nil {
			return nil, err
		}
		l.mu.Lock()
		l.src = src
		l.mu.Unlock()
	}
	return src.Receive(ctx, limit, maxBytes)
}

func (l *lateSource) Ack(ctx context.Context, ds []*backend.Delivery) error {
	return l.source().Ack(ctx, ds)
}

func (l *lateSource) Delay(ctx context.Context, ds []backend.Delayed) error {
	return l.source().(backend.Delayer).Delay(ctx, ds)
}

func (l *lateSource) Extend(ctx context.Context, ds []*backend.Delivery) error {
	return l.source().(backend.Extender).Extend(ctx, ds)
}

func (l *lateSource) Close() error {
	if src := l.source(); src != nil {
		return src.Close()
	}
	return nil
}

var settleFaults = []Fault{
	{Name: "ack-ignored", Breaks: "an acknowledgement is a courtesy", On: []Op{Ack}, Do: nothing},
	{Name: "ack-only-held", Breaks: "only the holder acknowledges", On: append([]Op{Receive}, settling...), New: holdings(func(c *Call, h *holding) {
		c.Acked = slices.DeleteFunc(c.Acked, func(d *backend.Delivery) bool { return c.Op == Ack && (h.stale(c, *d) || h.of(c, *d).given) })
		c.Next()
	})},
	{Name: "settle-once", Breaks: "what happened once cannot happen again", On: []Op{Ack, Leave, Close, Declare, Remove, Settle}, New: func() effect {
		var seen set
		return func(c *Call) {
			for _, what := range c.targets() {
				if !seen.add(what) {
					c.Err = cmp.Or(map[Op]error{Leave: backend.ErrClosed, Close: backend.ErrClosed, Declare: backend.ErrRefused}[c.Op], backend.ErrGone)
					return
				}
			}
			c.Next()
		}
	}},
	{Name: "settle-none-refused", Driver: true, Breaks: "a call must have items", On: settling, Do: func(c *Call) {
		if len(c.Acked)+len(c.Delayed) == 0 {
			c.Err = backend.ErrRefused
			return
		}
		c.Next()
	}},
	{Name: "close-settles", Breaks: "what a member holds or has given back ends with it", On: []Op{Attach, Receive, Leave}, New: func() effect {
		var mu sync.Mutex
		received := map[*source][]backend.Delivery{}
		return func(c *Call) {
			c.Config.ConfirmAcks = false // or the Ack below would be fenced
			mu.Lock()
			if c.Op == Leave {
				_ = c.Source.Source.Ack(c.Ctx, backend.Lend(received[c.Source])) // some are settled
			}
			mu.Unlock()
			c.Next()
			mu.Lock()
			defer mu.Unlock()
			received[c.Source] = append(received[c.Source], c.Deliveries...)
		}
	}},
}

// targets names what a call is about, for settle-once.
func (c *Call) targets() (all []string) {
	for _, d := range c.Acked {
		all = append(all, fmt.Sprint(c.Op, c.group(), d.Position))
	}
	for _, p := range c.Positions {
		all = append(all, fmt.Sprint(c.Op, c.group(), p))
	}
	switch c.Op {
	case Declare:
		all = append(all, fmt.Sprint(c.Op, c.Topic))
	case Leave, Close:
		all = append(all, fmt.Sprintf("%s %p %p", c.Op, c.Source, c.Store))
	}
	return all
}

var delayFaults = []Fault{
	{Name: "delay-ignored", Breaks: "what is given back comes back when its lease expires", On: []Op{Delay}, Do: nothing},
	{Name: "delay-truncated", Breaks: "a delay is about as long as asked for, in whole milliseconds", On: []Op{Delay}, Do: delayed(func(_ *Call, d *backend.Delayed) { d.For = (d.For * 9 / 10).Truncate(time.Millisecond) })},
	{Name: "delay-capped", Breaks: "a delay is at most three leases", On: []Op{Delay}, Do: delayed(func(c *Call, d *backend.Delayed) { d.For = min(d.For, 3*c.Config.Lease) })},
	{Name: "delay-inverts-refunds", Breaks: "every receipt counts, unless its attempt ended", On: []Op{Delay}, Do: delayed(func(_ *Call, d *backend.Delayed) { d.Refund = !d.Refund })},
	{Name: "delay-publishes", Breaks: "what is given back is published again", On: []Op{Delay}, Do: func(c *Call) {
		good := c.Store.Store
		for _, d := range c.Delayed {
			_ = c.Source.Source.Ack(c.Ctx, []*backend.Delivery{&d.Delivery})
			again, ctx := d.Message, context.WithoutCancel(c.Ctx)
			time.AfterFunc(d.For, func() { _ = good.Publish(ctx, []*backend.Message{&again}) })
		}
	}},
	{Name: "extend-ignored", Breaks: "a lease cannot be extended", On: []Op{Extend}, Do: nothing},
}

// delayed changes each item of a Delay.
func delayed(change func(c *Call, d *backend.Delayed)) effect {
	return before(func(c *Call) {
		for i := range c.Delayed {
			change(c, &c.Delayed[i])
		}
	})
}

// A holding tracks the latest delivery of each message in each group.
type holding struct {
	mu     sync.Mutex
	latest map[string]held
}

type held struct {
	backend.Delivery
	given bool // it was given back since
}

// holdings returns the New of a fault of the operations that settle deliveries.
func holdings(do func(c *Call, h *holding)) func() effect {
	return func() effect {
		h := &holding{latest: map[string]held{}}
		return func(c *Call) {
			if c.Op != Receive {
				do(c, h)
			} else {
				c.Next()
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, d := range c.Deliveries {
				h.latest[c.group()+d.Position] = held{Delivery: d}
			}
			for _, d := range c.Delayed {
				h.latest[c.group()+d.Position] = held{h.latest[c.group()+d.Position].Delivery, true}
			}
		}
	}
}

func (h *holding) of(c *Call, d backend.Delivery) held {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest[c.group()+d.Position]
}

// stale reports whether the message was redelivered since the delivery d.
func (h *holding) stale(c *Call, d backend.Delivery) bool { return h.of(c, d).Attempt != d.Attempt }

var fenceFaults = []Fault{
	{Name: "unfenced", Breaks: "anyone settles and extends", On: append([]Op{Receive}, settling...), New: holdings(func(c *Call, h *holding) {
		own := owned(c.Acked)
		for _, d := range own {
			*d = h.of(c, *d).Delivery
		}
		c.Acked = own
		for i, d := range c.Delayed {
			c.Delayed[i].Delivery = h.of(c, d.Delivery).Delivery
		}
		if c.Next(); c.Op == Ack && errors.Is(c.Err, backend.ErrLeaseLost) { // acknowledged before
			c.Err = nil
		}
	})},
	{Name: "lost-leases-hidden", Breaks: "a lost lease is nothing to worry about", On: settling, Do: returns(backend.ErrLeaseLost, nil)},
}

var instanceFaults = []Fault{
	{Name: "instance-ignored", Breaks: "every member holds its messages until its lease expires", On: []Op{Attach}, Do: before(func(c *Call) { c.Config.Instance, c.Config.Incarnation = "", "" })},
	{Name: "instance-replaces-everyone", Breaks: "an instance has one member at a time, and there is one instance", On: []Op{Attach}, Do: before(func(c *Call) {
		c.Config.Instance, c.Config.Incarnation = "all", rand.Text()
	})},
}

var readFaults = []Fault{
	{Name: "read-from-included", Breaks: "a Read begins with the message at its position, or waits for one", On: []Op{Read}, Do: func(c *Call) {
		after, _ := c.Start.After()
		all := c.stored()
		if i := slices.IndexFunc(all, func(m backend.Message) bool { return m.Position >= after }); i >= 0 && after != "" {
			c.Page = all[i:min(i+c.Max, len(all))]
			return
		}
		if c.Next(); len(c.Page) == 0 && c.Err == nil {
			rest(c.Ctx, time.Minute)
		}
	}},
	{Name: "remove-ignored", Breaks: "a topic keeps every message", On: []Op{Remove}, Do: before(func(c *Call) { c.Positions = nil })},
	{Name: "errors-hidden", Driver: true, Breaks: "what does not exist is empty, and a broker that does not answer an operator has done nothing", On: []Op{Read, Remove, Stats, DeleteTopic, DeleteGroup, Pause, Settle, Settled}, Do: after(func(c *Call) {
		switch {
		case errors.Is(c.Err, backend.ErrGone):
			c.Err = nil
		case errors.Is(c.Err, backend.ErrUnknownOutcome):
			c.Err = backend.ErrUnavailable
		}
	})},
}

var operatorFaults = []Fault{
	{Name: "lists-by-prefix", Breaks: "a list has every name, and what begins with a name is deleted with it", On: []Op{Topics, Groups, DeleteTopic, DeleteGroup}, Do: func(c *Call) {
		good := c.Store.Store
		topics, _ := good.Topics(c.Ctx)
		groups, _ := good.Groups(c.Ctx, c.Topic)
		switch c.Op {
		case DeleteTopic:
			for _, name := range topics {
				if name != c.Topic && strings.HasPrefix(name, c.Topic) {
					_ = good.DeleteTopic(c.Ctx, name)
				}
			}
		case DeleteGroup:
			for _, name := range groups {
				if name != c.Group && strings.HasPrefix(name, c.Group) {
					_ = good.DeleteGroup(c.Ctx, c.Topic, name)
				}
			}
		}
		if c.Next(); c.Op == Topics || c.Op == Groups {
			slices.Reverse(c.Names)
		}
	}},
	{Name: "every-group", Breaks: "what an operator does to a group is done to all groups of the topic", On: []Op{DeleteGroup, ResetGroup, Pause, Settle}, Do: everyGroup},
	{Name: "reset-ignored", Breaks: "a group that is reset continues where it was, and is not paused anymore", On: []Op{ResetGroup}, Do: func(c *Call) {
		c.Err = c.Store.Store.Resume(c.Ctx, c.Topic, c.Group)
	}},
	{Name: "pause-ignored", Breaks: "a pause is a wish", On: []Op{Pause}, Do: func(c *Call) { _, c.Err = c.Store.Store.Paused(c.Ctx, c.Topic, c.Group) }},
	{Name: "settle-ignored", Breaks: "only members settle messages", On: []Op{Settle}, Do: func(c *Call) {
		_, c.Err = c.Store.Store.Stats(c.Ctx, c.Topic, c.Group)
		c.Settled[0] = true
	}},
	{Name: "settle-ahead", Breaks: "a message can be settled before it is received, and nobody knows whether it is", On: []Op{Settle, Settled}, Do: after(func(c *Call) {
		if c.Op == Settled {
			clear(c.Settled)
		} else if errors.Is(c.Err, backend.ErrRefused) {
			c.Err, c.Settled[0] = nil, true
		}
	})},
}

var settingFaults = []Fault{
	{Name: "settings-corrected", Breaks: "a negative setting is none, and a pause in the past is an hour", On: []Op{Declare, Pause}, Do: before(func(c *Call) {
		s := &c.Declaration.Settings
		s.Keep, s.MaxMessages, s.MaxBytes = max(s.Keep, 0), max(s.MaxMessages, 0), max(s.MaxBytes, 0)
		if u := c.Pause.Until; !u.IsZero() && time.Until(u) < 0 {
			c.Pause.Until = time.Now().Add(time.Hour)
		}
	})},
	{Name: "settings-ignored", Breaks: "settings are a wish", On: []Op{Declare}, Do: func(c *Call) {
		wish := c.Declaration.Settings
		c.Declaration.Settings = backend.TopicSettings{}
		c.Next()
		c.Settings = wish
	}},
	{Name: "ephemeral-ignored", Breaks: "a group is for ever", On: []Op{Attach}, Do: before(func(c *Call) { c.Config.Ephemeral = false })},
	{Name: "ephemeral-ends-with-one", Breaks: "an idle member takes its group along when it leaves, or after ten leases", On: []Op{Attach, Leave, Maintain}, New: func() effect {
		var mu sync.Mutex
		attached := map[*source]time.Time{}
		return func(c *Call) {
			c.Next()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case c.Op == Attach && c.Err == nil && c.Config.Ephemeral:
				attached[c.Source] = time.Now()
			case c.Op == Leave && c.Config.Ephemeral:
				_ = c.Store.Store.DeleteGroup(c.Ctx, c.Topic, c.Group) // it may be gone
			case c.Op == Maintain:
				for s, at := range attached {
					if time.Since(at) > 10*s.config.Lease {
						_ = c.Store.Store.DeleteGroup(c.Ctx, s.config.Topic, s.config.Group)
					}
				}
			}
		}
	}},
}

var statsFaults = []Fault{
	{Name: "stats-lie", Breaks: "the lag is what the topic keeps, the oldest message is new, and the time is asked once", On: []Op{Stats, Now}, New: func() effect {
		var first atomic.Value // time.Time
		return after(func(c *Call) {
			c.Stats.Lag, c.Stats.Oldest = c.Stats.Depth, time.Now()
			first.CompareAndSwap(nil, c.Time)
			c.Time = first.Load().(time.Time)
		})
	}},
}

var maintainFaults = []Fault{
	{Name: "maintain-trims-unread", Breaks: "a topic keeps recent messages, and there is always something to maintain", On: []Op{Maintain}, Do: func(c *Call) {
		c.settleAll()
		c.Next()
		c.Wait = 0
	}},
}

var closeFaults = []Fault{
	{Name: "closed-works", Driver: true, Breaks: "a closed backend, and a closed source, still work", On: []Op{Leave, Close}, Do: nothing},
	{Name: "closed-answers", Driver: true, Breaks: "a closed backend answers", On: []Op{Ping, Maintain, Declare, Read, Stats, Receive, Ack}, Do: func(c *Call) {
		if c.Next(); errors.Is(c.Err, backend.ErrClosed) {
			if c.Err = nil; c.Op == Receive {
				<-c.Ctx.Done()
				c.Err = c.Ctx.Err()
			}
		}
	}},
}
