package middleware

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus"
)

// Sign is a step of an [Envelope] that signs events with Ed25519 (RFC 8032). The signature covers
// the ID, the attributes except TTL and Retry, the headers named in EnvelopeOptions.Headers, and
// the payload: the encrypted one with Encrypt, and the reference to it with ClaimCheck. It does not
// cover the topic, because a dead letter is in another topic.
//
// Handlers never get an event with a wrong signature; it fails permanently (see
// [eventbus.Permanent]). An event whose key is not in Public is retried, because you may add the
// key. Handlers get unsigned events only with AcceptUnsigned, or from topics that
// EnvelopeOptions.Topics excludes.
//
// A program that has only public keys can verify events but not forge them. To rotate keys, add the
// new public key to all programs, then let publishers sign with the new private key. Remove the old
// public key once no stored event or dead letter needs it.
//
// A valid signature does not prove that an event is new. An attacker with access to the broker can
// store a copy of a signed event, even in another topic. In the same topic, [Dedupe] discards a
// copy with the same ID. But a dead letter has an ID of its own, which is not signed; Sign then
// checks the original ID, which is in a header of the dead letter. By adding that header, an
// attacker can give a copy any ID. If a handler must not run twice, put an ID into the signed
// payload.
type Sign struct {
	Key     string                       // the ID of the key to sign with; if empty, this program only verifies, and Publish fails
	Private Key                          // the key to sign with: NewKey of an ed25519.PrivateKey
	Public  map[string]ed25519.PublicKey // the keys that verify, by ID; the envelope adds the public key of Private

	// AcceptUnsigned accepts events without a signature, which otherwise fail permanently. Set it
	// while you introduce signing in the programs of a topic.
	AcceptUnsigned bool
}

// A signer implements Sign. A nil signer does nothing.
type signer struct {
	key            string
	private        Key
	public         map[string]ed25519.PublicKey
	acceptUnsigned bool
}

func newSigner(o *Sign) (*signer, error) {
	if o == nil {
		return nil, nil
	}
	s := &signer{key: o.Key, public: map[string]ed25519.PublicKey{}, acceptUnsigned: o.AcceptUnsigned}
	for id, key := range o.Public {
		if err := checkKeyID("Sign.Public", id); err != nil {
			return nil, err
		}
		if len(key) != ed25519.PublicKeySize {
			return nil, envelopeError("Sign.Public["+id+"]", fmt.Sprintf("has %d bytes; Ed25519 needs %d", len(key), ed25519.PublicKeySize))
		}
		s.public[id] = slices.Clone(key)
	}
	private := o.Private.bytes()
	switch {
	case o.Key == "" && len(private) > 0:
		return nil, envelopeError("Sign.Key", "is empty, but there is a Private")
	case o.Key == "" && len(s.public) == 0:
		return nil, envelopeError("Sign.Public", "is empty, and there is no Private")
	case o.Key == "":
		return s, nil
	case len(private) != ed25519.PrivateKeySize:
		return nil, envelopeError("Sign.Private", fmt.Sprintf("has %d bytes; Ed25519 needs %d", len(private), ed25519.PrivateKeySize))
	}
	if err := checkKeyID("Sign.Key", o.Key); err != nil {
		return nil, err
	}
	s.private = o.Private
	own := ed25519.PrivateKey(private).Public().(ed25519.PublicKey)
	if other, ok := s.public[o.Key]; ok && !own.Equal(other) {
		return nil, envelopeError("Sign.Public["+o.Key+"]", "is not the public key of Private")
	}
	s.public[o.Key] = own
	return s, nil
}

func (s *signer) seal(e *eventbus.Event, headers []string) error {
	switch {
	case s == nil:
		return nil
	case s.key == "":
		return errOnlyOpens("Sign")
	}
	signature := ed25519.Sign(s.private.bytes(), s.bound(e, headers))
	e.Headers.Set(signatureHeader, s.key+" "+base64.StdEncoding.EncodeToString(signature))
	return nil
}

func (s *signer) open(e *eventbus.Event, headers []string, strict bool) error {
	value, signed := e.Headers.Lookup(signatureHeader)
	switch {
	case s == nil:
		return nil
	case !signed && (s.acceptUnsigned || !strict):
		return nil
	case !signed:
		return permanent("has no signature")
	}
	id, text, _ := strings.Cut(value, " ")
	key, ok := s.public[id]
	if !ok {
		return errNoKey("Sign", id)
	}
	signature, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !ed25519.Verify(key, s.bound(e, headers), signature) {
		return permanent("verify with key %q: %w", id, errSignature)
	}
	return checkID(e)
}

var errSignature = errors.New("the signature is wrong: the event was changed, or another key signed it")

// bound returns the bytes to sign: attributes, the given headers, and the digest of the payload.
func (s *signer) bound(e *eventbus.Event, headers []string) []byte {
	b := bound("eventbus sign 1", e, []string{keyHeader, encodingHeader, claimHeader}, headers)
	digest := sha256.Sum256(e.Payload)
	return append(b, digest[:]...)
}
