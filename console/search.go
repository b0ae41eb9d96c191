package console

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/pages"
)

// A search chooses events. An empty field matches all events.
type search struct {
	ID, Key, Type string
	Header, Value string           // a name, and the value of that header, or any value
	Group         string           // of dead letters; Kind has its own
	Kind          *groupstats.Kind // all of it must match; nil: any
}

// searchOf returns the search of a request.
func searchOf(q url.Values) search {
	s := search{
		ID: q.Get("id"), Key: q.Get("key"), Type: q.Get("type"),
		Header: strings.TrimSpace(q.Get("header")), Value: q.Get("value"),
	}
	if q.Has("kind") {
		s.Kind = &groupstats.Kind{Topic: q.Get("of"), Group: q.Get("group"), Reason: q.Get("reason"), ErrorClass: q.Get("class"), Type: q.Get("etype")}
	} else {
		s.Group = q.Get("group")
	}
	return s
}

func (s *search) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"id": s.ID, "key": s.Key, "type": s.Type, "header": s.Header, "value": s.Value, "group": s.Group} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if k := s.Kind; k != nil {
		v.Set("kind", "1")
		for name, value := range map[string]string{"of": k.Topic, "group": k.Group, "reason": k.Reason, "class": k.ErrorClass, "etype": k.Type} {
			v.Set(name, value)
		}
	}
	return v
}

func (s *search) empty() bool {
	return s.ID+s.Key+s.Type+s.Header+s.Value+s.Group == "" && s.Kind == nil
}

func (s *search) matches(e *eventbus.Event) bool {
	why, kind, dead := groupstats.KindOf(e)
	return (s.ID == "" || e.ID == s.ID || dead && why.ID == s.ID) &&
		(s.Key == "" || e.Key == s.Key) && (s.Type == "" || e.Type == s.Type) &&
		s.matchesHeader(e.Headers) && (s.Group == "" || dead && why.Group == s.Group) && (s.Kind == nil || dead && *s.Kind == kind)
}

func (s *search) matchesHeader(h eventbus.Headers) bool {
	if s.Header == "" {
		if s.Value == "" {
			return true
		}
		for i := range h {
			if h[i].Value == s.Value {
				return true
			}
		}
		return false
	}
	v, ok := h.Lookup(s.Header)
	return ok && (s.Value == "" || v == s.Value)
}

// A searchResult is the outcome of a search in one request.
type searchResult struct {
	rows []eventRow
	read int           // events that were read
	next backend.Start // where to continue
	done bool          // the topic has no further events
}

// search looks for events starting at from, until a page is full or the bounds are reached.
func (tr *topicReader) search(ctx context.Context, s *search, from backend.Start) (f searchResult, err error) {
	read := tr.pagesFrom(from)
	f.next = from
	for {
		ms, err := read.Next(ctx, pages.MostPage)
		switch {
		case errors.Is(err, pages.ErrSpent) && f.read > 0:
			return f, nil
		case err != nil:
			return f, err
		case len(ms) == 0:
			f.done = true
			return f, nil
		}
		for i := range ms {
			f.read++
			e := tr.redact.EventOf(&ms[i])
			if s.matches(&e) {
				f.rows = append(f.rows, eventRowOf(&e, f.next))
			}
			f.next = backend.StartAfter(ms[i].Position)
			if len(f.rows) == pageRows {
				return f, nil
			}
		}
	}
}
