package middleware

import (
	"fmt"
	"slices"

	"github.com/seed41896749/eventbus"
)

// A Key is a secret key for [Encrypt] or [Sign]. Packages such as fmt and encoding/json do not
// reveal its bytes. The ID under which you use a key has 1 to 64 visible ASCII characters. The zero
// Key means no key.
type Key struct{ reveal func() []byte }

// NewKey returns a key with a copy of secret.
func NewKey(secret []byte) Key {
	secret = slices.Clone(secret)
	return Key{reveal: func() []byte { return secret }}
}

func (k Key) bytes() []byte {
	if k.reveal == nil {
		return nil
	}
	return k.reveal()
}

// checkKeyID refuses an ID that a header could not store unchanged.
func checkKeyID(field, id string) error {
	if id == "" || len(id) > 64 {
		return envelopeError(field, "has a key ID that is empty or longer than 64 bytes")
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c >= 0x7f {
			return envelopeError(field, fmt.Sprintf("has the key ID %q; allowed are visible ASCII characters", id))
		}
	}
	return nil
}

// errNoKey is the error for an event with an unknown key ID. It is not permanent, because the
// program may get the key later.
func errNoKey(step, id string) error {
	return fmt.Errorf("%s has no key with the ID %q", step, id)
}

// errOnlyOpens is the error of a Publish if a step has no key to seal with.
func errOnlyOpens(step string) error {
	return &eventbus.FieldError{Field: "Payload", Reason: "cannot be sealed, because EnvelopeOptions." + step + ".Key is empty"}
}
