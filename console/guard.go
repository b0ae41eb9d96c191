package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// policy allows a page its own files only. It allows no script and no style inside a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// maxQuery is the most bytes of a query.
const maxQuery = 8 << 10

// guard returns a handler that refuses requests which no page of ours makes, and finds the route of
// the others. Names are in the query, so a path is exactly the name of a route. Only forms may change
// something, and only they get a POST.
func guard(hosts []string, routes, forms map[string]http.HandlerFunc, notFound http.HandlerFunc) http.Handler {
	allowed := make([]string, len(hosts))
	for i, h := range hosts {
		allowed[i] = hostName(h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSecurityHeaders(w.Header())
		path := strings.TrimPrefix(r.URL.Path, "/")
		form, changes := forms[path]
		switch {
		case len(allowed) > 0 && !slices.Contains(allowed, hostName(r.Host)):
			http.Error(w, "the console does not serve this host name", http.StatusMisdirectedRequest)
		case changes && r.Method != http.MethodPost:
			w.Header().Set("Allow", "POST")
			http.Error(w, "this address accepts only forms", http.StatusMethodNotAllowed)
		case !changes && r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "this address is read-only", http.StatusMethodNotAllowed)
		case len(r.URL.RawQuery) > maxQuery:
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

func setSecurityHeaders(h http.Header) {
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

// Tokens prove that a form comes from a page of this handler, which the same browser has got. A token
// is a time and an HMAC of the time and the browser's cookie. A foreign page can read neither.
type tokens struct{ key [32]byte }

const (
	cookieName = "eventbus-console"
	cookieSize = 16             // random bytes
	tokenLife  = 12 * time.Hour // of a form
)

func newTokens() *tokens {
	t := new(tokens)
	_, _ = rand.Read(t.key[:]) // it does not fail
	return t
}

// issue returns a token for the browser of r. A browser without a cookie gets one. The cookie states no
// path, so a browser takes the path of the handler, which the handler itself cannot know behind a proxy.
func (t *tokens) issue(w http.ResponseWriter, r *http.Request) string {
	cookie, ok := cookieOf(r)
	if !ok {
		cookie = make([]byte, cookieSize)
		_, _ = rand.Read(cookie) // it does not fail
		http.SetCookie(w, &http.Cookie{
			Name: cookieName, Value: base64.RawURLEncoding.EncodeToString(cookie),
			HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
	}
	at := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix())) //nolint:gosec // a time after 1970
	return base64.RawURLEncoding.EncodeToString(append(at, t.sum(at, cookie)...))
}

// valid reports whether token was issued for the browser of r, and not too long ago.
func (t *tokens) valid(r *http.Request, token string) bool {
	cookie, ok := cookieOf(r)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if !ok || err != nil || len(raw) != 8+sha256.Size || !hmac.Equal(raw[8:], t.sum(raw[:8], cookie)) {
		return false
	}
	issued := time.Unix(int64(binary.BigEndian.Uint64(raw)), 0) //nolint:gosec // the sum has proved it
	return time.Since(issued) <= tokenLife
}

func (t *tokens) sum(at, cookie []byte) []byte {
	mac := hmac.New(sha256.New, t.key[:])
	_, _ = mac.Write(at) // it does not fail
	_, _ = mac.Write(cookie)
	return mac.Sum(nil)
}

// cookieOf returns the random bytes in the cookie of r.
func cookieOf(r *http.Request) ([]byte, bool) {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(c.Value)
	return raw, err == nil && len(raw) == cookieSize
}
