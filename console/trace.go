package console

import (
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/seed41896749/eventbus"
)

// A trace is the trace of an event, with a link to a page about it.
type trace struct {
	ID  string // 32 hex digits; empty: the event has none
	URL string // empty: the console has no address of such pages
}

const traceIDParam = "{trace_id}" // stands for the id in an address

// checkTraceURL returns an error that says why an address cannot be a link to traces, or nil. An
// empty one is none.
func checkTraceURL(address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(strings.ReplaceAll(address, traceIDParam, strings.Repeat("0", 32)))
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("does not begin with http:// or https://")
	case u.Hostname() == "":
		return errors.New("has no host")
	case !strings.Contains(address, traceIDParam):
		return errors.New("does not have " + traceIDParam)
	case strings.Contains(authority(address), traceIDParam):
		return errors.New("has " + traceIDParam + " in its host")
	}
	return nil
}

// authority returns the part of a URL before its path, with user, host and port.
func authority(address string) string {
	_, rest, _ := strings.Cut(address, "//")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// traceparent is the form of the header, by W3C Trace Context. A later version may have more fields.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$`)

// traceID returns the id of the trace to which an event belongs, or "" if it belongs to none.
func traceID(h eventbus.Headers) string {
	text, ok := h.Lookup("traceparent")
	if !ok {
		text, _ = h.Lookup("ce-traceparent") // an extension of CloudEvents
	}
	found := traceparent.FindStringSubmatch(text)
	if found == nil || strings.HasPrefix(text, "ff") || strings.Trim(found[1], "0") == "" {
		return ""
	}
	return found[1]
}

// traceURL returns the address of the page for a trace, or "" if there is none.
func (c *console) traceURL(id string) string {
	if id == "" || c.traces == "" {
		return ""
	}
	return strings.ReplaceAll(c.traces, traceIDParam, id)
}
