package middleware_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/middleware"
)

func TestNewKeyCopies(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	o := middleware.EnvelopeOptions{Encrypt: &middleware.Encrypt{Key: "2026", Keys: map[string]middleware.Key{"2026": middleware.NewKey(secret)}}}
	clear(secret) // as a careful program does
	e := sealed(t, envelope(t, o), eventbus.Event{ID: "1", Payload: []byte("pay 1")})
	require.NoError(t, envelope(t, steps(t, 2)).Open(t.Context(), &e))
}

func TestKeysAreHidden(t *testing.T) {
	o := steps(t, 15)
	v := envelope(t, o)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		for _, value := range []any{aesKey, o.Encrypt, o.Sign, *o.Encrypt, *o.Sign, o, v, *v} {
			text := fmt.Sprintf(verb, value)
			for _, leak := range []string{"7 7 7", "0x7, 0x7", "070707", `\a\a\a`, "\a\a\a", "9 9 9", "0x9, 0x9", "090909", `\t\t\t`, "\t\t\t"} {
				require.NotContains(t, text, leak, verb)
			}
		}
	}
	text, err := json.Marshal(map[string]any{"encrypt": o.Encrypt, "sign": o.Sign})
	require.NoError(t, err)
	require.JSONEq(t, `{
		"encrypt": {"Key": "2026", "Keys": {"2026": {}}, "AcceptPlain": false},
		"sign": {"Key": "till", "Private": {}, "Public": null, "AcceptUnsigned": false}
	}`, string(text))
}
