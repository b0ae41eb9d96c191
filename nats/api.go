package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/slab"
)

// An api makes requests of the JetStream API.
type api struct {
	sender *sender
	prefix string // the beginning of the subject of each request
}

func newAPI(s *sender, o Options) *api {
	switch {
	case o.APIPrefix != "":
		return &api{s, o.APIPrefix + "."}
	case o.Domain != "":
		return &api{s, "$JS." + o.Domain + ".API."}
	}
	return &api{s, jetstream.DefaultAPIPrefix}
}

// ask makes one request and decodes the answer into out, unless out is nil. If a permission is
// missing, ask fails at once instead of running into the timeout.
func (a *api) ask(ctx context.Context, verb string, in, out any) error {
	return a.do(ctx, verb, in, out, false)
}

// askRepeatedly is ask for requests about a stream or consumer that may be new. In a cluster
// it has no leader for a moment, and nobody answers, so the request is sent again after each
// second without an answer. The server may run it twice.
func (a *api) askRepeatedly(ctx context.Context, verb string, in, out any) error {
	return a.do(ctx, verb, in, out, true)
}

func (a *api) do(ctx context.Context, verb string, in, out any, insist bool) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("%w: %w", backend.ErrRefused, err)
		}
	}
	answer, err := a.request(ctx, outgoing{subject: a.prefix + verb, data: body}, insist)
	if err != nil {
		return err
	}
	return readAnswer(answer, out)
}

// request sends o and returns the answer. It gives up after answerTimeout without one, because
// a busy server may drop a request. With insist it sends o again after each second without an
// answer.
func (a *api) request(ctx context.Context, o outgoing, insist bool) (reply *natsgo.Msg, err error) {
	r := newRequester(a.sender, 1)
	defer r.closeInbox()
	r.begin(1)
	r.out[0] = o
	r.await(0)
	c := callOptions{silenceLimit: answerTimeout, onAnswer: func(_ int, m *natsgo.Msg, failure error) { reply, err = m, failure }}
	if insist {
		c.onSilence = func() { r.resend(func(int) bool { return true }) }
	}
	r.exchange(ctx, c)
	return reply, err
}

// maxParallel is the most requests that askAll has under way. A server with thousands of
// waiting requests drops some.
const maxParallel = 200

// askAll makes one request for each question, all with the same verb and many at a time. It
// calls got with the answer or the error of each. A missing permission fails all of them.
func (a *api) askAll(ctx context.Context, verb string, questions []any, got func(i int, answer *natsgo.Msg, err error)) error {
	r := newRequester(a.sender, min(len(questions), maxParallel))
	defer r.closeInbox()
	for first := 0; first < len(questions); first += maxParallel {
		some := questions[first:min(first+maxParallel, len(questions))]
		r.begin(len(some))
		for i, q := range some {
			body, err := json.Marshal(q)
			if err != nil {
				return fmt.Errorf("%w: %w", backend.ErrRefused, err)
			}
			r.out[i] = outgoing{subject: a.prefix + verb, data: body}
			r.await(i)
		}
		r.exchange(ctx, callOptions{silenceLimit: answerTimeout, onAnswer: func(i int, m *natsgo.Msg, err error) { got(first+i, m, err) }})
		r.end()
	}
	return nil
}

// awaitServed waits until the server answers requests about a new stream or consumer, which in
// a cluster takes a moment. It repeats the request refused, to which the answer is always an
// error. After spreadTimeout it returns without an error.
func (a *api) awaitServed(ctx context.Context, refused outgoing) error {
	for until := time.Now().Add(spreadTimeout); ; {
		answer, err := a.request(ctx, refused, false)
		switch {
		case errors.Is(err, backend.ErrDenied):
			return nil // the client may not use this subject, so it need not wait for it
		case err != nil || !isUnserved(answer) || time.Now().After(until):
			return err
		}
		if !sleep(ctx, nil, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
}

const spreadTimeout = 2 * time.Second // the longest wait of awaitServed

// sleep waits for d and returns true. If ctx is done or ended is closed first, it returns
// false.
func sleep(ctx context.Context, ended <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-ended:
	}
	return false
}

// readAnswer decodes an answer of the API into out, unless out is nil. It returns the error
// that the answer reports.
func readAnswer(m *natsgo.Msg, out any) error {
	if isUnserved(m) {
		return fmt.Errorf("%w: JetStream does not answer: it is starting, not enabled on the server, or in another domain", backend.ErrUnavailable)
	}
	var a struct {
		Error *jetstream.APIError `json:"error"`
	}
	err := json.Unmarshal(m.Data, &a)
	switch {
	case err != nil:
	case a.Error != nil:
		return a.Error
	case out != nil:
		err = json.Unmarshal(m.Data, out)
	}
	if err != nil {
		return fmt.Errorf("an answer of JetStream: %w", err)
	}
	return nil
}

// isCode reports whether err is a JetStream error with one of these codes.
func isCode(err error, codes ...jetstream.ErrorCode) bool {
	e, ok := errors.AsType[*jetstream.APIError](err)
	return ok && slices.Contains(codes, e.ErrorCode)
}

// names lists names page by page. Each page begins with the last name of the page before, so
// that no name is skipped when one is deleted in between. If the list may be incomplete, the
// error is ErrUnavailable.
func (a *api) names(ctx context.Context, verb string) (all []string, err error) {
	for {
		var page struct {
			Total     int      `json:"total"`
			Streams   []string `json:"streams"`
			Consumers []string `json:"consumers"`
		}
		if err := a.ask(ctx, verb, map[string]int{"offset": max(len(all)-1, 0)}, &page); err != nil {
			return nil, err
		}
		names := append(page.Streams, page.Consumers...)
		switch n := len(all); {
		case len(names) == 0 && page.Total > n, n > 0 && len(names) == 1:
			return nil, fmt.Errorf("%w: the server does not list all names", backend.ErrUnavailable)
		case n == 0:
			all = names
		case len(names) == 0 || names[0] != all[n-1]:
			return nil, fmt.Errorf("%w: names were made or deleted while they were listed", backend.ErrUnavailable)
		default:
			all = append(all, names[1:]...)
		}
		if len(all) >= page.Total {
			return all, nil
		}
	}
}

// A requester sends the requests of one call at a time and collects their answers.
type requester struct {
	replyInbox
	callOptions

	first   uint64 // number of the call's first request; numbers continue across calls
	out     []outgoing
	waiting []bool    // for each request: its answer is awaited
	awaited int       // how many elements of waiting are true
	mem     slab.Slab // memory of the messages of the current call
	subject []byte    // buffer for a reply subject
	stale   bool      // a late answer may arrive during a later call
}

// callOptions are the settings and callbacks of one call of a requester.
type callOptions struct {
	silenceLimit time.Duration // longest time between two answers; 0 means that only the context ends the call

	// onAnswer is called with the answer or the error of each awaited request, and with the
	// error of any other request that certainly was not sent. If the outcome of a request is
	// unknown, its error has no class.
	onAnswer func(i int, m *natsgo.Msg, err error)

	// onSilence, unless it is nil, is called after each second without an answer. It may call
	// fail for requests that will never be answered.
	onSilence func()
}

const (
	poolSize     = 16                         // size of the pool of requesters
	maxRequests  = 4096                       // most requests of one call
	smallCall    = 1024                       // a requester does not keep the memory of a call with more requests
	pollInterval = 50 * time.Millisecond      // interval of checks for a missing permission, while no answer comes
	silentPolls  = time.Second / pollInterval // number of quiet intervals between two calls of conversation.why
)

// newRequester returns a requester for calls of up to size requests.
func newRequester(s *sender, room int) *requester {
	return &requester{replyInbox: newReplyInbox(s, room+16, nil)}
}

// begin starts a call with n requests. The caller sets the elements of out, and calls await
// for each request that is answered.
func (r *requester) begin(n int) {
	r.ensureInbox()
	r.out, r.waiting = slices.Grow(r.out[:0], n)[:n], slices.Grow(r.waiting[:0], n)[:n]
	clear(r.out)
	clear(r.waiting)
	r.mem, r.awaited = slab.Slab{}, 0
}

// await makes the call wait for the answer to request i. Every request has a reply subject of
// its own: a cluster with a new leader may answer twice, and the second answer must not pass
// for the answer to a later request.
func (r *requester) await(i int) {
	r.subject = strconv.AppendUint(append(r.subject[:0], r.inbox.prefix...), r.first+uint64(i), 10)
	r.out[i].reply, r.waiting[i] = r.mem.Text(r.subject), true
	r.awaited++
}

// replyLen returns the most bytes that a reply subject can have.
func (r *requester) replyLen() int { return len(r.inbox.prefix) + len("18446744073709551615") }

// exchange sends the requests of the call and returns when all awaited answers have come or
// failed. If ctx ends, the connection is lost, or no answer comes for c.silenceLimit, the
// outcome of the unanswered requests is unknown, unless they were never sent.
func (r *requester) exchange(ctx context.Context, c callOptions) {
	if r.awaited == 0 {
		return
	}
	r.callOptions = c
	// Cut off trailing requests that are not sent: the sender could read them after the last
	// answer, when the next call already uses their memory.
	sent := len(r.out)
	for r.out[sent-1].subject == "" {
		sent--
	}
	r.sent = r.sender.send(r.inbox, r.out[:sent], r.sender.connection())
	err := r.collect(ctx)
	if err != nil {
		unsent := r.sender.withdraw(r.sent)
		if unsent {
			err = classOf(ctx, err, false)
		}
		for i := range r.out {
			if r.waiting[i] || unsent && r.out[i].subject != "" {
				r.fail(i, err)
			}
		}
	}
	r.callOptions, r.sent = callOptions{}, nil // they keep the messages alive
	if r.stale {
		r.closeInbox()
		r.out, r.waiting, r.stale = nil, nil, false // the sender may still read the memory
	}
}

// resend sends the selected requests of the call a second time. Their answers are still
// awaited.
func (r *requester) resend(which func(i int) bool) {
	out := slices.Clone(r.out)
	for i := range out {
		if !which(i) {
			out[i] = outgoing{}
		}
	}
	r.sender.send(r.inbox, out, r.sent.lost)
}

func (r *requester) collect(ctx context.Context) error {
	for looks := time.Duration(0); r.awaited > 0; {
		m, err := r.wait(ctx, pollInterval)
		if m != nil {
			if r.accept(m) {
				looks = 0
			}
			continue
		}
		failed, notSent := errors.AsType[backend.BatchError](err)
		switch {
		case notSent:
			for i, err := range failed {
				if err != nil {
					r.fail(i, classOf(ctx, err, false))
				}
			}
		case errors.Is(err, natsgo.ErrPermissionViolation) && !concerns(err, r.inbox.prefix+"*"): // requests are refused, not the answers
			for i, waits := range r.waiting {
				if waits && concerns(err, r.out[i].subject) {
					r.fail(i, fmt.Errorf("%w: %w", backend.ErrDenied, err))
				}
			}
		case err != nil:
			return err
		default:
			if looks++; r.silenceLimit > 0 && looks*pollInterval >= r.silenceLimit {
				return context.DeadlineExceeded
			}
			if looks%silentPolls == 0 && r.onSilence != nil && r.sent.begun.Load() {
				r.onSilence()
			}
		}
	}
	return nil
}

// accept handles an answer. It returns false for one that is not awaited.
func (r *requester) accept(m *natsgo.Msg) bool {
	index, ok := strings.CutPrefix(m.Subject, r.inbox.prefix)
	i, err := strconv.ParseUint(index, 10, 64)
	i -= r.first // becomes very large for a request of an earlier call
	if !ok || err != nil || i >= uint64(len(r.waiting)) || !r.waiting[i] {
		return false // the answer to an earlier request, or a forged one
	}
	r.waiting[i] = false
	r.awaited--
	r.onAnswer(int(i), m, nil)
	return true
}

// fail stops waiting for the answer to request i and reports err instead.
func (r *requester) fail(i int, err error) {
	if r.waiting[i] {
		r.waiting[i] = false
		r.awaited--
	}
	r.stale = true
	r.onAnswer(i, nil, err)
}

// end ends a call. It keeps the memory for the next call, unless there is a lot of it.
func (r *requester) end() {
	r.first += uint64(len(r.out))
	if cap(r.out) > smallCall {
		r.out, r.waiting = nil, nil
	}
	clear(r.out)
	r.mem = slab.Slab{}
}
