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

// ask makes one request of the JetStream API and reads its answer into out, if
// that is not nil. What the server forbids is known at once, not at the end of
// the time.
func (b *Backend) ask(ctx context.Context, verb string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("%w: %w", backend.ErrRefused, err)
		}
	}
	answer, err := b.request(ctx, &natsgo.Msg{Subject: b.api + verb, Data: body})
	if err != nil {
		return err
	}
	return readAnswer(&answer, out)
}

// request makes one request and returns its answer.
func (b *Backend) request(ctx context.Context, m *natsgo.Msg) (answer arrival, err error) {
	l, err := b.asking.Get(ctx)
	if err != nil {
		return answer, err
	}
	defer b.asking.Put(l)
	if err := l.begin(1); err != nil {
		return answer, err
	}
	m.Reply = string(l.reply(0))
	if err := b.conn.PublishMsg(m); err != nil {
		return answer, err
	}
	l.asked(0)
	var denied error
	err = l.gather(ctx, func(int) string { return m.Subject }, func(_ int, a *arrival, d error) {
		if denied = d; d == nil {
			answer = *a
		}
	}, nil)
	return answer, errors.Join(denied, err)
}

// awaitServed sends what the server is sure to refuse, until somebody does: in a
// cluster it takes a moment until the way to what was made just now is known.
// After a while it leaves it at that.
func (b *Backend) awaitServed(ctx context.Context, refused *natsgo.Msg) error {
	for until := time.Now().Add(spread); ; {
		answer, err := b.request(ctx, refused)
		switch {
		case errors.Is(err, backend.ErrDenied):
			return nil // then this client does not use it
		case err != nil || !answer.isUnserved() || time.Now().After(until):
			return err
		}
		t := time.NewTimer(10 * time.Millisecond)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

const spread = 2 * time.Second

// readAnswer reads an answer of the API.
func readAnswer(m *arrival, out any) error {
	if m.isUnserved() {
		return fmt.Errorf("%w: JetStream does not answer", backend.ErrUnavailable)
	}
	var a struct {
		Error *jetstream.APIError `json:"error"`
	}
	err := json.Unmarshal(m.data, &a)
	switch {
	case err != nil:
	case a.Error != nil:
		return a.Error
	case out != nil:
		err = json.Unmarshal(m.data, out)
	}
	if err != nil {
		return fmt.Errorf("an answer of JetStream: %w", err)
	}
	return nil
}

// isCode reports whether err is an answer of JetStream with one of these codes.
func isCode(err error, codes ...jetstream.ErrorCode) bool {
	e, ok := errors.AsType[*jetstream.APIError](err)
	return ok && slices.Contains(codes, e.ErrorCode)
}

// pages asks for a list of the API, page by page. Take reads one page and returns
// how long the list is, and how much of it this was.
func pages[T any](ctx context.Context, b *Backend, verb string, take func(T) (total, n int)) error {
	for offset := 0; ; {
		var list T
		if err := b.ask(ctx, verb, map[string]int{"offset": offset}, &list); err != nil {
			return err
		}
		total, n := take(list)
		if offset += n; n == 0 || offset >= total {
			return nil
		}
	}
}
