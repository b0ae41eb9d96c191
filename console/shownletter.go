package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

// A shownLetter is a dead letter of which a visitor can order a change.
type shownLetter struct {
	event  eventbus.Event      // as the pages show it
	stored eventbus.DeadLetter // of the letter as it is stored, so that Redact moves no bound
}

// letterOf returns the letter that m stores. It reports false if m is no dead letter, and if the pages
// do not show m as one.
func letterOf(r groupstats.Redact, m *backend.Message) (l shownLetter, ok bool) {
	event := eventbus.EventOf(m)
	if l.stored, ok = eventbus.DeadLetterOf(&event); !ok {
		return l, false
	}
	l.event = r.EventOf(m)
	_, ok = eventbus.DeadLetterOf(&l.event)
	return l, ok
}

// seen returns a text that is another one if the pages show another letter, or this one otherwise. The
// form of one letter has it, because a position can have another letter when the form comes back.
func seen(e *eventbus.Event) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []any{e.ID, e.Type, e.Key, sorted(e.Headers), e.Payload}))
	return hex.EncodeToString(sum[:])
}

// sorted returns headers by name. Their order has no meaning, and differs between two reads.
func sorted(all eventbus.Headers) eventbus.Headers {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b eventbus.Header) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
	})
	return all
}

// takes returns the letter that m stores, if the order changes it. The page that asks counts the
// letters by takes, and the change chooses them by it.
func (o *order) takes(r groupstats.Redact, m *backend.Message) (l shownLetter, ok bool) {
	if o.Place != "" && o.Place != m.Position {
		return l, false
	}
	l, ok = letterOf(r, m)
	if ok && o.seen != "" && o.seen != seen(&l.event) {
		return l, false
	}
	if !ok || !o.before.IsZero() && !l.stored.LastAttempt.Before(o.before) {
		return l, false
	}
	return l, o.search.matches(&l.event)
}
