package console

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/seed41896749/eventbus/backend"
)

// errNotAllowed is what a visitor sees when Options.Allow refuses an action. The reason may be a secret,
// and only goes to the log.
var errNotAllowed = errors.New("you are not allowed to do that")

// allow returns an error unless the visitor of r may do a.
func (c *console) allow(r *http.Request, a Action) error {
	if c.executor == nil {
		return errNotAllowed
	}
	if err := c.executor.allow(r, a); err != nil {
		if !a.DryRun {
			c.executor.logAction(r.Context(), slog.LevelWarn, "console: refused", c.executor.visitor(r), &a, slog.Any("error", err))
		}
		return errNotAllowed
	}
	return nil
}

// offers reports whether a page of c offers the action a, with a verb, to the visitor of r.
func offers(c *console, r *http.Request, a Action, v Verb) bool {
	a.Verb, a.DryRun = v, true
	return c.executor != nil && c.executor.supports(v) == nil && c.allow(r, a) == nil
}

// permissions say which buttons a page shows to its visitor, and why it lacks the others.
type permissions struct {
	Token       string
	Refused     []Verb // Options.Allow refuses them to this visitor
	Unsupported []Verb // the backend lacks them
	can         map[Verb]bool
}

// Can reports whether a page shows the button of a verb.
func (p *permissions) Can(verb string) bool { return p.can[Verb(verb)] }

// permissions returns the permit for the action a with each of these verbs. It is nil if the console only
// reads, and for a request of the script, which takes no form from the page.
func (c *console) permissions(w http.ResponseWriter, r *http.Request, a Action, verbs ...Verb) *permissions {
	if c.executor == nil || isPart(r) {
		return nil
	}
	p := &permissions{can: map[Verb]bool{}}
	a.DryRun = true
	for _, v := range verbs {
		a.Verb = v
		switch {
		case c.executor.supports(v) != nil:
			p.Unsupported = append(p.Unsupported, v)
		case c.allow(r, a) != nil:
			p.Refused = append(p.Refused, v)
		default:
			p.can[v] = true
		}
	}
	if len(p.can) > 0 {
		p.Token = c.executor.tokens.issue(w, r)
	}
	return p
}

// supports returns an error if the backend certainly cannot do v.
func (x *executor) supports(v Verb) error {
	var ok bool
	switch v {
	case Pause, Resume:
		_, ok = backend.As[backend.Pauser](x.backend)
	case Reset, DeleteGroup, DeleteTopic:
		_, ok = backend.As[backend.Admin](x.backend)
	default:
		_, reads := backend.As[backend.Reader](x.backend)
		_, removes := backend.As[backend.Remover](x.backend)
		_, settles := backend.As[backend.Settler](x.backend)
		ok = reads && removes && (settles || v != Bury)
	}
	if ok {
		return nil
	}
	return errors.ErrUnsupported
}
