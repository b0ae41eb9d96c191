package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/pages"
)

// A page is the data of a template.
type page struct {
	Title   string
	Version string // of the assets
	Live    bool   // the script renews the parts that are live
	Now     time.Time
	Figures *groupstats.Snapshot // nil: the page has none
	Permit  *permissions         // nil: the page has no buttons
	Changes bool                 // the console has a list of changes
	Name    string               // of the template
	Body    any
}

// partHeader marks requests that refresh the live parts of a page, without its events.
const partHeader = "Eventbus-Part"

func isPart(r *http.Request) bool { return r.Header.Get(partHeader) != "" }

// render writes a page.
func (c *console) render(w http.ResponseWriter, r *http.Request, code int, name string, p *page) {
	p.Name, p.Version, p.Now, p.Changes = name, c.version, time.Now(), c.executor != nil
	var body bytes.Buffer
	if err := c.pages[name].ExecuteTemplate(&body, "base.html", p); err != nil {
		panic(err) // the template does not fit its data
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	writeBody(w, r, code, body.Bytes())
}

// A failure says why a page has no content.
type failure struct {
	Text string
	Hint string
	Back string // URL of the page from which the visitor came; empty: not known
}

// fail writes a page with an error. It has a link back if the request names a topic or a group in the way
// of a form.
func (c *console) fail(w http.ResponseWriter, r *http.Request, title string, err error) {
	code, f := failureOf(err)
	if r.Form == nil {
		f.Back = backURL(r.URL.Query())
	} else {
		f.Back = backURL(r.Form)
	}
	c.render(w, r, code, "failure", &page{Title: title, Body: f})
}

var errNotFound = errors.New("no such page")

// notFound answers requests for unknown paths. Links are relative and would lead nowhere below another
// slash, so the answer then has none.
func (c *console) notFound(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/") {
		http.Error(w, errNotFound.Error(), http.StatusNotFound)
		return
	}
	c.fail(w, r, "Not found", errNotFound)
}

// failureOf explains an error, and returns the status of its answer.
func failureOf(err error) (int, failure) {
	f := failure{Text: err.Error()}
	switch {
	case errors.Is(err, errNotFound):
		return http.StatusNotFound, f
	case errors.Is(err, errForm):
		return http.StatusBadRequest, f
	case errors.Is(err, errNotAllowed):
		return http.StatusForbidden, f
	case errors.Is(err, errBusy):
		f.Hint = "Wait until it ends, or stop it on the Changes page."
		return http.StatusConflict, f
	case errors.Is(err, backend.ErrGone):
		f.Hint = "The topic or the event no longer exists."
		return http.StatusNotFound, f
	case errors.Is(err, errors.ErrUnsupported):
		f.Hint = "This backend does not support that."
		return http.StatusNotImplemented, f
	case errors.Is(err, pages.ErrSpent):
		f.Hint = "This request would read too many or too large events, or take too long. Browse the oldest events first, or start at a time."
		return http.StatusServiceUnavailable, f
	case errors.Is(err, backend.ErrDenied):
		f.Hint = "The broker does not allow this user to read this."
		return http.StatusForbidden, f
	case errors.Is(err, backend.ErrRefused):
		f.Hint = "The position in the address of this page does not exist in the topic."
		return http.StatusBadRequest, f
	case errors.Is(err, backend.ErrUnavailable), errors.Is(err, backend.ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded):
		f.Hint = "The broker does not respond. Try again in a moment."
		return http.StatusServiceUnavailable, f
	}
	return http.StatusInternalServerError, f
}

// A table holds the data for the table of groups.
type table struct {
	Caption string
	Groups  []*groupstats.Group
	now     time.Time
}

// Table returns the data of a table of groups.
func (p *page) Table(caption string, groups []*groupstats.Group) table {
	return table{caption, groups, p.Now}
}

// At returns a group with the time of the table.
func (t table) At(g *groupstats.Group) groupAt { return groupAt{g, t.now} }

// At returns a group with the time of the page.
func (p *page) At(g *groupstats.Group) groupAt { return groupAt{g, p.Now} }

// A groupAt is a group and the time of the page, from which ages count.
type groupAt struct {
	Group *groupstats.Group
	Now   time.Time
}

//go:embed assets templates
var files embed.FS

// addAssets adds the routes of the style and the script. It returns a text that changes with them.
func addAssets(routes map[string]http.HandlerFunc) (version string) {
	hash := sha256.New()
	for _, a := range []struct{ name, kind string }{{"console.css", "text/css; charset=utf-8"}, {"console.js", "text/javascript; charset=utf-8"}} {
		data := readAsset("assets/" + a.name)
		sum := sha256.Sum256(data)
		_, _ = hash.Write(sum[:]) // it does not fail
		routes["assets/"+a.name] = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", a.kind)
			w.Header().Set("Cache-Control", "max-age=31536000, immutable") // its URL has the version
			writeBody(w, r, http.StatusOK, data)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

func readAsset(name string) []byte {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return data
}

// parsePages returns the templates of the pages by their names.
func parsePages() map[string]*template.Template {
	all := map[string]*template.Template{}
	base := template.Must(template.New("base.html").Funcs(templateFuncs).ParseFS(files, "templates/base.html", "templates/parts.html", "templates/group-parts.html", "templates/buttons.html"))
	for _, name := range []string{"overview", "group", "topic", "event", "letters", "schedule", "lifecycle", "processes", "failure", "confirm", "edit", "job", "jobs"} {
		page := template.Must(base.Clone())
		all[name] = template.Must(page.ParseFS(files, "templates/"+name+".html"))
	}
	return all
}

// writeBody writes a whole answer, without its body for HEAD.
func writeBody(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the browser may have gone
	}
}
