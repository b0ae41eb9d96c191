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

// ask makes one request of the JetStream API. It decodes the answer into out, unless out is
// nil. If a permission is missing, ask fails without waiting for the timeout.
func (a *api) ask(ctx context.Context, verb string, in, out any) error {
	return a.exchange(ctx, verb, in, out, false)
}

// insist makes one request like ask, but sends it again after each second without an
// answer. So the server may run it twice. In a cluster, a new stream or consumer has no
// leader for a moment, and no server answers requests about it.
func (a *api) insist(ctx context.Context, verb string, in, out any) error {
	return a.exchange(ctx, verb, in, out, true)
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

// request sends o and returns the answer. It fails after 5 seconds without an answer (const
// answer), because a busy server may drop a request of the API. With insist it sends o
// again after each second without an answer.
func (a *api) request(ctx context.Context, o outgoing, insist bool) (reply *natsgo.Msg, err error) {
	r := newRequester(a.sender, 1)
	defer r.hangUp()
	r.begin(1)
	r.out[0] = o
	r.await(0)
	c := conversation{patience: answer, got: func(_ int, m *natsgo.Msg, failure error) { reply, err = m, failure }}
	if insist {
		c.why = func() { r.again(func(int) bool { return true }) }
	}
	r.exchange(ctx, c)
	return reply, err
}

// mostAsked is the most requests of the API that askAll has under way. The server drops
// requests if thousands of them wait.
const mostAsked = 200

// askAll makes requests with the same verb, many at a time, and calls got with the answer to
// each, or with its error. A missing permission fails all.
func (a *api) askAll(ctx context.Context, verb string, questions []any, got func(i int, answer *natsgo.Msg, err error)) error {
	r := newRequester(a.sender, min(len(questions), mostAsked))
	defer r.hangUp()
	for first := 0; first < len(questions); first += mostAsked {
		some := questions[first:min(first+mostAsked, len(questions))]
		r.begin(len(some))
		for i, q := range some {
			body, err := json.Marshal(q)
			if err != nil {
				return fmt.Errorf("%w: %w", backend.ErrRefused, err)
			}
			r.out[i] = outgoing{subject: a.prefix + verb, data: body}
			r.await(i)
		}
		r.exchange(ctx, conversation{patience: answer, got: func(i int, m *natsgo.Msg, err error) { got(first+i, m, err) }})
		r.end()
	}
	return nil
}

// awaitServed waits until the server answers requests about a new stream or consumer. In a
// cluster this takes a moment. It repeats the request refused, to which the answer is
// always an error. After spread it returns without an error.
func (a *api) awaitServed(ctx context.Context, refused outgoing) error {
	for until := time.Now().Add(spread); ; {
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

const spread = 2 * time.Second // the longest wait of awaitServed

// sleep waits for d and returns true. If ctx is done or ended is closed before, it returns
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

// readAnswer decodes an API answer into out, unless out is nil. If the answer is an error,
// readAnswer returns the error.
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

// names requests a list of names, page by page. Each page begins with the last name of the
// page before, so that no name is skipped if one is deleted meanwhile. If the list may be
// incomplete, the error is ErrUnavailable.
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
