package redisstream

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A source is one member of a group, and a consumer of the stream. While a read waits, it has a
// connection of its own; see readerPool.
//
// Receive reads new messages with XREADGROUP. Messages to be redelivered, after a delay or an
// expired lease, come from the script take.lua. A source runs it at the end of each delay that
// it knows of, and otherwise every half second.
type source struct {
	backend *Backend
	config  backend.Config
	options TopicOptions
	stream  string
	delayed string
	name    string // name of the consumer

	closed atomic.Bool

	receiving  sync.Mutex // held during Receive
	reader     *session   // of the Receive in progress, or nil; changing it takes mu too
	reply      reply      // memory for the replies of the reader
	lastBytes  int64      // bytes of the last reply that had entries
	meanSize   int        // mean bytes of the entries in that reply
	maxSize    int64      // bytes of the largest recent entry
	loan       slab.Loan  // the deliveries that are lent to the caller of Receive
	receivedAt time.Time  // when the last Receive was called
	lastFailed bool       // the last Receive failed
	sweepOwner int        // index of the consumer at which take.lua resumes its search for expired leases
	sweepAfter string     // ID after which it resumes at that consumer
	runNumber  int        // number of the next run of take.lua; grows after each run that got a reply
	lostRun    int        // runNumber when a reply was lost; 0 once its messages were given back
	highest    []byte     // highest position received

	incarnation incarnation // zero if the member has no Instance

	mu        sync.Mutex
	nextTake  time.Time // when to run take.lua next
	delayEnds bool      // a delay ends at nextTake
	blocked   bool      // a read waits for new messages, until nextTake at most
	resets    int       // how many resets of the group the member has noticed
	resetAt   string    // first position delivered after the latest reset
}

var (
	_ backend.Source   = (*source)(nil)
	_ backend.Delayer  = (*source)(nil)
	_ backend.Extender = (*source)(nil)
)

// Attach implements [backend.Backend].
func (b *Backend) Attach(ctx context.Context, c backend.Config) (_ backend.Source, err error) {
	defer func() { err = b.failure("attach", c.Topic+"/"+c.Group, err) }()
	if c.Lease <= 0 {
		return nil, fmt.Errorf("%w: a lease of %v", backend.ErrRefused, c.Lease)
	}
	start, err := startID(c.Start)
	if err != nil {
		return nil, err
	}
	stream := b.streamKey(c.Topic)
	if err := b.with(ctx, func(sess *session) error { return (&inspection{backend: b, session: sess}).topic(ctx, stream) }); err != nil {
		return nil, err
	}
	s := &source{
		backend: b, config: c, options: b.options.Topics[c.Topic], stream: stream, name: memberName(c),
		runNumber: 1, highest: []byte(noPosition), meanSize: initialSize, maxSize: initialSize,
	}
	s.delayed = delayedKey(s.stream, c.Group)
	if c.Ephemeral {
		if err := b.ephemerals.register(ctx, s); err != nil {
			return nil, err
		}
	}
	if err := s.incarnation.join(ctx, s, start); err != nil {
		return nil, err
	}
	b.readers.addMember()
	b.members.add(s)
	if b.closed.Load() {
		s.close() //nolint:contextcheck // closing has none
		return nil, backend.ErrClosed
	}
	b.warnings.deliver(c.Notify)
	return s, nil
}

// failure adds the operation, topic and group to err. After Close the error is ErrClosed.
func (s *source) failure(op string, err error) error {
	return failure(s.closed.Load(), op, s.config.Topic+"/"+s.config.Group, err)
}

// Close implements [backend.Source].
func (s *source) Close() error {
	s.close()
	return nil
}

func (s *source) close() {
	if s.closed.Swap(true) {
		return
	}
	s.mu.Lock()
	if s.reader != nil {
		s.reader.end()
	}
	s.mu.Unlock()
	s.receiving.Lock()
	defer s.receiving.Unlock()
	s.reply, s.loan = reply{}, slab.Loan{} // whoever keeps a subscription or a delivery keeps s
	s.backend.members.remove(s)
	s.backend.readers.removeMember()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // Close has none
	defer cancel()
	// Errors do not matter, because Maintain removes a member that could not leave.
	if s.config.Ephemeral {
		s.backend.ephemerals.unregister(ctx, s)
		return
	}
	_ = s.backend.run(ctx, leaveScript, []string{s.stream}, s.config.Group, s.name)
}

// members is the set of a backend's open members.
type members struct {
	mu  sync.Mutex
	all map[*source]struct{}
}

func (m *members) add(s *source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[*source]struct{}{}
	}
	m.all[s] = struct{}{}
}

func (m *members) remove(s *source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, s)
}

func (m *members) list() []*source {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.all))
}

// ephemeral returns the members of an ephemeral group.
func (m *members) ephemeral(topic, group string) (all []*source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.all {
		if c := &s.config; c.Ephemeral && c.Topic == topic && c.Group == group {
			all = append(all, s)
		}
	}
	return all
}

// groups returns the names of a topic's groups that have a member here. The topic may be
// trimmed only if each of them exists. Ephemeral groups are left out, because they may have
// ended.
func (m *members) groups(topic string) (names []any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.all {
		if s.config.Topic == topic && !s.config.Ephemeral {
			names = append(names, s.config.Group)
		}
	}
	return names
}
