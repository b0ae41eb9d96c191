package nats

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// A receipt is the Token of a delivery. The server does not fence: it lets a former holder
// settle. So the receipt has the time until which this member is certainly the holder.
type receipt struct {
	source     *source
	reply      string
	generation int64        // generation of the delivery in the memory of the source
	until      atomic.Int64 // the lease has not expired before this instant; 0 after the delivery was settled
}

// held reports whether the member is certainly still the holder of the delivery.
func (r *receipt) held() bool {
	return r.until.Load() > instant(time.Now()) && r.generation >= r.source.memory.gone.Load()
}

// extend sets the end of the lease to began plus d, unless the delivery is settled.
func (r *receipt) extend(began time.Time, d time.Duration) {
	if was := r.until.Load(); was != 0 {
		r.until.CompareAndSwap(was, instant(began.Add(d)))
	}
}

// instant returns the nanoseconds of the monotonic clock from the beginning of the process
// to t.
func instant(t time.Time) int64 { return int64(t.Sub(processBegan)) }

var processBegan = time.Now()

// deliveries makes deliveries of msgs and appends them to ds. The pull asked for at most
// most deliveries in all. It was sent at the time asked, so no lease began earlier.
func (s *source) deliveries(ds []backend.Delivery, msgs []*natsgo.Msg, most int, asked time.Time) []backend.Delivery {
	if len(msgs) == 0 {
		return ds
	}
	var mem slab.Slab
	for i := range msgs {
		mem.Expect(0, otherHeaders(msgs[i].Header), positionLen)
	}
	last, _ := metaOf(msgs[len(msgs)-1].Reply)
	s.pulls.behind = last.pending()
	if room := max(len(msgs), min(most-len(ds), len(msgs)+s.pulls.behind)); ds == nil || len(ds)+len(msgs) > cap(ds) {
		ds = s.pulls.loan.Room(ds, room)
	}
	receipts := make([]receipt, len(msgs))
	until := instant(asked.Add(s.config.Lease))
	var digits [positionLen]byte
	var highest uint64
	for i := range msgs {
		ds = append(ds, backend.Delivery{})
		m, d, r := msgs[i], &ds[len(ds)-1], &receipts[i]
		meta, err := metaOf(m.Reply)
		r.source, r.reply = s, m.Reply
		r.until.Store(until)
		highest = max(highest, meta.sequence)
		d.Topic, d.Attempt, d.Redelivered, d.Token = s.config.Topic, meta.delivered, meta.delivered > 1, r
		d.Position, d.Payload = mem.Text(appendPosition(digits[:0], meta.sequence)), m.Data
		if err == nil {
			err = readHeader(&mem, &d.Message, m.Header)
		}
		d.Err = err
	}
	generation := s.memory.came(highest)
	for i := range receipts {
		receipts[i].generation = generation
	}
	return s.pulls.loan.Lend(ds)
}

// A meta is the content of a reply subject:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>
//
// A longer form also has a domain and an account after ACK, and a token at the end.
type meta struct {
	delivered int
	sequence  uint64
	rest      string // the text after the sequence
}

// pending returns the number of undelivered messages of the consumer after this one, or 0
// if it is not known.
func (m meta) pending() int {
	_, rest, _ := strings.Cut(m.rest, ".")
	_, rest, _ = strings.Cut(rest, ".")
	digits, _, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}

func metaOf(reply string) (m meta, err error) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	skip := 2
	if strings.Count(rest, ".") >= 8 {
		skip = 4
	}
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	delivered, rest, _ := strings.Cut(rest, ".")
	sequence, rest, more := strings.Cut(rest, ".")
	m.rest = rest
	if !ok || !more {
		return m, fmt.Errorf("%w: %q is not the reply of a delivery", backend.ErrRefused, reply)
	}
	if m.delivered, err = strconv.Atoi(delivered); err == nil {
		m.sequence, err = strconv.ParseUint(sequence, 10, 64)
	}
	return m, err
}
