package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pool"
)

// An api makes requests of the JetStream API.
type api struct {
	prefix string // begins the subject of each request
	asking *pool.Pool[*requester]
}

func newAPI(s *sender, domain string) *api {
	a := &api{jetstream.DefaultAPIPrefix, newRequesters(s)}
	if domain != "" {
		a.prefix = "$JS." + domain + ".API."
	}
	return a
}

// ask makes one request of the JetStream API and reads the answer into out, unless out is
// nil. A missing permission fails at once, without waiting for the timeout.
func (a *api) ask(ctx context.Context, verb string, in, out any) error {
	return a.exchange(ctx, verb, in, out, false)
}

func (a *api) exchange(ctx context.Context, verb string, in, out any, insist bool) error {
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

// insist is ask for a request that may be made twice. It sends the request again after each
// second without an answer. In a cluster nobody answers about a stream or a consumer that
// was created a moment ago and has no leader yet.
func (a *api) insist(ctx context.Context, verb string, in, out any) error {
	return a.exchange(ctx, verb, in, out, true)
}

// request makes one request and returns its answer. It fails after 5 seconds without an
// answer (const answer), because a busy server may drop a request of the API. With insist it
// sends the request again after each second without an answer.
func (a *api) request(ctx context.Context, o outgoing, insist bool) (reply *natsgo.Msg, err error) {
	r, err := a.asking.Get(ctx)
	if err != nil {
		return nil, err
	}
	defer a.asking.Put(r)
	r.begin(1)
	defer r.end()
	r.add(o, true)
	var failed error
	c := conversation{
		patience: answer,
		got:      func(_ int, m *natsgo.Msg) { reply = m },
		failed:   func(_ int, err error) { failed = err },
	}
	if insist {
		c.why = func() func(int) error {
			r.again(func(int) bool { return true })
			return func(int) error { return nil }
		}
	}
	err = r.exchange(ctx, c)
	return reply, errors.Join(failed, err)
}

// awaitServed sends a request that the server is sure to refuse, until the server refuses
// it. In a cluster a new stream or consumer becomes reachable a moment after its creation.
// After spread, awaitServed gives up without an error.
func (a *api) awaitServed(ctx context.Context, refused outgoing) error {
	for until := time.Now().Add(spread); ; {
		answer, err := a.request(ctx, refused, false)
		switch {
		case errors.Is(err, backend.ErrDenied):
			return nil // the subject is not permitted, so this client never uses it
		case err != nil || !isUnserved(answer) || time.Now().After(until):
			return err
		}
		if !sleep(ctx, nil, 10*time.Millisecond) {
			return ctx.Err()
		}
	}
}

const spread = 2 * time.Second // the longest wait of awaitServed

// sleep waits for d. It reports false if ctx or ended ended the wait.
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

// readAnswer reads an API answer into out.
func readAnswer(m *natsgo.Msg, out any) error {
	if isUnserved(m) {
		return fmt.Errorf("%w: JetStream does not answer", backend.ErrUnavailable)
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

// pages requests a list of the API, page by page. take reads one page and returns the
// length of the whole list and of the page.
func pages[T any](ctx context.Context, a *api, verb string, take func(T) (total, n int)) error {
	for offset := 0; ; {
		var list T
		if err := a.ask(ctx, verb, map[string]int{"offset": offset}, &list); err != nil {
			return err
		}
		total, n := take(list)
		if offset += n; n == 0 || offset >= total {
			return nil
		}
	}
}
