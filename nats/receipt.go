package nats

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	source *source
	reply  string
	era    *era         // when the delivery arrived
	until  atomic.Int64 // the lease has not expired before this instant; 0 after the delivery was settled
}

// held reports whether the member is certainly still the holder of the delivery.
func (r *receipt) held() bool { return r.until.Load() > instant(time.Now()) }

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

// errForgotten means that the server has forgotten a delivery.
var errForgotten = fmt.Errorf("%w: the server has forgotten that it handed it out", backend.ErrLeaseLost)

// forgotten returns errForgotten if the server is known to have forgotten the delivery.
func (r *receipt) forgotten() error {
	if r.era.next.Load() == nil {
		return nil
	}
	if m, err := metaOf(r.reply); err == nil && r.era.forgot(m.sequence) {
		return errForgotten
	}
	return nil
}

// deliveries makes deliveries of msgs and appends them to ds. The pull was sent at the time
// asked, so no lease began earlier.
func (s *source) deliveries(ds []backend.Delivery, msgs []*natsgo.Msg, asked time.Time) []backend.Delivery {
	if len(msgs) == 0 {
		return ds
	}
	era := s.era.Load() // messages arrive before their era ends
	var mem slab.Slab
	for i := range msgs {
		mem.Expect(0, otherHeaders(msgs[i].Header), positionLen)
	}
	ds = s.pulls.loan.Room(ds, len(msgs))
	receipts := make([]receipt, len(msgs))
	until := instant(asked.Add(s.config.Lease))
	var digits [positionLen]byte
	for i, m := range msgs {
		ds = append(ds, backend.Delivery{})
		d, r := &ds[len(ds)-1], &receipts[i]
		meta, err := metaOf(m.Reply)
		r.source, r.reply, r.era = s, m.Reply, era
		r.until.Store(until)
		d.Topic, d.Attempt, d.Redelivered, d.Token = s.config.Topic, meta.delivered, meta.delivered > 1, r
		d.Position, d.Payload = mem.Text(appendPosition(digits[:0], meta.sequence)), m.Data
		if err == nil {
			err = readHeader(&mem, &d.Message, m.Header)
		}
		d.Err = err
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
	sequence, _, more := strings.Cut(rest, ".")
	if !ok || !more {
		return m, fmt.Errorf("%w: %q is not the reply of a delivery", backend.ErrRefused, reply)
	}
	if m.delivered, err = strconv.Atoi(delivered); err == nil {
		m.sequence, err = strconv.ParseUint(sequence, 10, 64)
	}
	return m, err
}

// A server that crashed may have forgotten its last deliveries. It does not answer
// acknowledgements of them, and redelivers their messages as if they were new. So after an
// error that may come from a crash, the member asks the server for the sequence of its last
// delivery.
//
// An era is the time between two of these questions. The answer is about the deliveries of
// the era that ends with the question, and of all eras before. It says nothing about
// deliveries after the question.
type era struct {
	last atomic.Uint64       // the server remembers deliveries up to this sequence
	next atomic.Pointer[era] // nil in the present era
}

func newEra() *era {
	e := new(era)
	e.last.Store(math.MaxUint64)
	return e
}

// forgot returns true if the server is known to have forgotten the delivery of the era e with
// this sequence.
func (e *era) forgot(sequence uint64) bool {
	for ; e != nil; e = e.next.Load() {
		if sequence > e.last.Load() {
			return true
		}
	}
	return false
}

// endEra begins a new era, and returns the one before.
func (s *source) endEra() *era {
	fresh := newEra()
	past := s.era.Swap(fresh)
	past.next.Store(fresh)
	return past
}

// wiped notes that the consumer was deleted, and all its deliveries with it.
func (s *source) wiped() { s.endEra().last.Store(0) }

// recollect asks the server which deliveries of the member the server remembers. If the
// server does not answer, recollect notes no delivery as forgotten. again means that the
// member must ask again later.
func (s *source) recollect(ctx context.Context) (again bool) {
	past := s.endEra()
	info, err := s.info(ctx)
	if err == nil && info.Delivered.Stream > 0 { // 0 is no answer: the server is starting
		past.last.Store(info.Delivered.Stream)
	}
	return err != nil && !errors.Is(err, backend.ErrDenied)
}
