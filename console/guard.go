package console

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// policy allows a page its own files only. It allows no script and no style inside a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// mostQuery is the most bytes of a query.
const mostQuery = 8 << 10

// guard returns a handler that refuses requests which no page of ours makes, and finds the route of
// the others. Names are in the query, so a path is exactly the name of a route. Only forms may change
// something, and only they get a POST.
func guard(hosts []string, routes, forms map[string]http.HandlerFunc, notFound http.HandlerFunc) http.Handler {
	allowed := make([]string, len(hosts))
	for i, h := range hosts {
		allowed[i] = hostName(h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secure(w.Header())
		path := strings.TrimPrefix(r.URL.Path, "/")
		form, changes := forms[path]
		switch {
		case len(allowed) > 0 && !slices.Contains(allowed, hostName(r.Host)):
			http.Error(w, "this host is not a name of the console", http.StatusMisdirectedRequest)
		case changes && r.Method != http.MethodPost:
			w.Header().Set("Allow", "POST")
			http.Error(w, "this address takes forms only", http.StatusMethodNotAllowed)
		case !changes && r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this address only reads", http.StatusMethodNotAllowed)
		case len(r.URL.RawQuery) > mostQuery:
			http.Error(w, "the query is too long", http.StatusRequestURITooLong)
		case changes:
			form(w, r)
		default:
			route, ok := routes[path]
			if !ok {
				route = notFound
			}
			route(w, r)
		}
	})
}

func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer") // a URL has keys and ids of events
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// hostName returns a host in lower case, without its port and the brackets of an IPv6 address.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
