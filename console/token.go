package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"time"
)

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
