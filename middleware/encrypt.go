package middleware

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"

	"github.com/seed41896749/eventbus"
)

// Encrypt is a step of an [Envelope] that encrypts payloads with AES-GCM and random nonces, which
// adds 28 bytes. Attributes and headers stay readable. The ID, the attributes except TTL and Retry,
// and the headers named in EnvelopeOptions.Headers are authenticated, so a payload cannot be moved
// to another event. The topic is not, because a dead letter is in another topic. An event that was
// tampered with fails permanently (see [eventbus.Permanent]). An event whose key is not in Keys is
// retried, because you may add the key.
//
// To rotate keys, add the new key to Keys of all programs, then let Key name it. Remove the old key
// once no stored event or dead letter needs it. Use one key for at most 2^32 events.
//
// An attacker with access to the broker can store an old event again, or present it as a dead
// letter of another topic.
type Encrypt struct {
	Key  string         // the ID of the key to encrypt with; if empty, this program only decrypts, and Publish fails
	Keys map[string]Key // the keys that decrypt, by ID; each has 16, 24 or 32 random bytes, for AES-128, -192 or -256

	// AcceptPlain accepts events that are not encrypted, which otherwise fail permanently. Set it
	// while you introduce encryption in the programs of a topic.
	AcceptPlain bool
}

// An encrypter implements Encrypt. A nil encrypter encrypts nothing and refuses encrypted events.
type encrypter struct {
	key         string
	ciphers     map[string]cipher.AEAD
	acceptPlain bool
}

func newEncrypter(o *Encrypt) (*encrypter, error) {
	if o == nil {
		return nil, nil
	}
	c := &encrypter{key: o.Key, ciphers: map[string]cipher.AEAD{}, acceptPlain: o.AcceptPlain}
	for id, key := range o.Keys {
		if err := checkKeyID("Encrypt.Keys", id); err != nil {
			return nil, err
		}
		block, err := aes.NewCipher(key.bytes())
		if err != nil {
			return nil, envelopeError("Encrypt.Keys["+id+"]", fmt.Sprintf("has %d bytes; AES needs 16, 24 or 32", len(key.bytes())))
		}
		if c.ciphers[id], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("eventbus: envelope: %w", err)
		}
	}
	switch {
	case len(c.ciphers) == 0:
		return nil, envelopeError("Encrypt.Keys", "is empty")
	case o.Key != "" && c.ciphers[o.Key] == nil:
		return nil, envelopeError("Encrypt.Key", fmt.Sprintf("is %q, which is not in Keys", o.Key))
	}
	return c, nil
}

func (c *encrypter) seal(e *eventbus.Event, headers []string) error {
	switch {
	case c == nil:
		return nil
	case c.key == "":
		return errOnlyOpens("Encrypt")
	}
	e.Headers.Set(keyHeader, c.key)
	e.Payload = c.ciphers[c.key].Seal(nil, nil, e.Payload, c.bound(e, headers))
	return nil
}

func (c *encrypter) open(e *eventbus.Event, headers []string, strict bool) error {
	id, encrypted := e.Headers.Lookup(keyHeader)
	switch {
	case c == nil && encrypted:
		return fmt.Errorf("the payload is encrypted, but EnvelopeOptions.Encrypt is nil")
	case c == nil:
		return nil
	case !encrypted && (c.acceptPlain || !strict):
		return nil
	case !encrypted:
		return permanent("the payload is not encrypted")
	case c.ciphers[id] == nil:
		return errNoKey("Encrypt", id)
	}
	if err := checkID(e); err != nil {
		return err
	}
	payload, err := c.ciphers[id].Open(nil, nil, e.Payload, c.bound(e, headers))
	if err != nil {
		return permanent("decrypt with key %q: the payload or an attribute was changed, or this is another key", id)
	}
	e.Payload = payload
	return nil
}

// bound returns the attributes and headers that are authenticated with the payload.
func (c *encrypter) bound(e *eventbus.Event, headers []string) []byte {
	return bound("eventbus encrypt 1", e, []string{keyHeader, encodingHeader}, headers)
}
