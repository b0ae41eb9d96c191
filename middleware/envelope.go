package middleware

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/seed41896749/eventbus"
)

// The headers of a sealed event. Handlers do not see them.
const (
	idHeader        = "envelope-id"        // the ID under which the event was published
	keyHeader       = "envelope-key"       // the ID of the key that Encrypt used
	claimHeader     = "envelope-claim"     // name, size and SHA-256 of the payload in the store
	signatureHeader = "envelope-signature" // the ID of the key that signed, and the signature in base64
	encodingHeader  = "content-encoding"   // "zstd"

	envelopeHeaders = 5
)

// EnvelopeOptions select the steps of an [Envelope]; a nil step is skipped. Publishing applies them
// in the order of the fields, and handling in the opposite order.
type EnvelopeOptions struct {
	Compress   *Compress
	Encrypt    *Encrypt
	ClaimCheck *ClaimCheck
	Sign       *Sign

	// Topics reports whether events published to a topic are sealed. Received events of other
	// topics, such as dead letters, are opened if they are sealed and accepted if they are not. By
	// default all topics are sealed. Topics is called concurrently.
	Topics func(topic string) bool

	// MaxPayload is the largest payload in bytes: of a published event before sealing, and of a
	// received event after decompression. A handler and its envelope together use up to three times
	// as much memory. Default: eventbus.MaxPayload, or 16 MiB with ClaimCheck.
	MaxPayload int

	// Headers names headers that Encrypt and Sign protect in addition to the payload and the
	// attributes. (TTL and Retry are never protected, because dead letters don't have them.) Don't
	// name a header that another program adds after sealing.
	Headers []string
}

// An Envelope seals events when they are published and opens them before they are handled.
// [EnvelopeOptions] select its steps, whose order is fixed: payloads are compressed before they are
// encrypted, because encrypted data doesn't compress; a ClaimCheck stores encrypted payloads; and
// the signature is checked before anything else is read.
//
// All programs of a topic need the same steps. An envelope without Compress doesn't decompress, and
// one without Sign doesn't check signatures. Encrypt and Sign refuse unprotected events unless
// AcceptPlain or AcceptUnsigned is set. An event that cannot be opened never reaches the handler.
// It goes to the dead-letter topic, still sealed. It is retried first if its key ID is unknown,
// because the program may get the key later, if a [BlobStore] failed, or if the envelope lacks
// Encrypt or ClaimCheck.
//
// Events stay sealed in their topic and as dead letters. A handler of the dead-letter topic sees
// the opened event if its bus has the envelope; the function Retry.Delay gets the sealed one.
// Programs that read a topic without a group call Open. A sealed event that is published again is
// stored unchanged; Publish fails if the envelope cannot open it.
//
// The methods of an Envelope are safe for concurrent use.
type Envelope struct {
	o        EnvelopeOptions
	compress *compressor
	encrypt  *encrypter
	sign     *signer
}

// NewEnvelope returns an envelope with the steps of o. If o is invalid, the error is a
// *eventbus.FieldError, whose text contains no secret.
func NewEnvelope(o EnvelopeOptions) (*Envelope, error) {
	most := eventbus.MaxPayload
	if o.ClaimCheck != nil {
		claim := *o.ClaimCheck
		o.ClaimCheck = &claim
		claim.MinSize = cmp.Or(claim.MinSize, 256<<10)
		most = 16 << 20
		if claim.Store == nil {
			return nil, envelopeError("ClaimCheck.Store", "is nil")
		}
	}
	o.MaxPayload = cmp.Or(o.MaxPayload, most)
	if o.MaxPayload < 0 {
		return nil, envelopeError("MaxPayload", "is negative")
	}
	if i := slices.IndexFunc(o.Headers, isEnvelopes); i >= 0 {
		return nil, envelopeError(fmt.Sprintf("Headers[%d]", i), "is a header of the envelope")
	}
	o.Headers = slices.Sorted(slices.Values(o.Headers))
	v := &Envelope{o: o}
	var err error
	if v.compress, err = newCompressor(o.Compress, o.MaxPayload); err != nil {
		return nil, err
	}
	if v.encrypt, err = newEncrypter(o.Encrypt); err != nil {
		return nil, err
	}
	v.sign, err = newSigner(o.Sign)
	return v, err
}

func envelopeError(field, reason string) error {
	return &eventbus.FieldError{Field: "EnvelopeOptions." + field, Reason: reason}
}

// Install adds the envelope to the options of a bus, such that publishing seals after all other
// middleware, and handling opens before all other middleware. Call it once all other middleware is
// set, and then pass *o to eventbus.New. Set Service in *o, not in a copy.
func (v *Envelope) Install(o *eventbus.Options) {
	o.Middleware = slices.Insert(slices.Clone(o.Middleware), 0, v.opening)
	sealing := func(next eventbus.Publisher) eventbus.Publisher { // eventbus.New calls this, so o.Service may change until then
		return v.sealing(next, o.Effective().Service)
	}
	o.PublishMiddleware = append(slices.Clone(o.PublishMiddleware), sealing)
}

func (v *Envelope) covers(topic string) bool { return v.o.Topics == nil || v.o.Topics(topic) }

func (v *Envelope) opening(next eventbus.Handler) eventbus.Handler {
	return func(ctx context.Context, d *eventbus.Delivery) error {
		opened := *d
		if err := v.openWith(ctx, &opened.Event, v.covers(d.Topic)); err != nil {
			return err
		}
		return next(ctx, &opened)
	}
}

// sealing returns a publisher that passes sealed copies of events to next, so that middleware
// around it still sees the originals. service is the default Source.
func (v *Envelope) sealing(next eventbus.Publisher, service string) eventbus.Publisher {
	return eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		if !v.covers(topic) {
			return next.Publish(ctx, topic, events...)
		}
		sealed := make([]*eventbus.Event, len(events))
		for i, e := range events {
			s := *e
			if err := v.seal(ctx, &s, service); err != nil {
				return notSealed(topic, i, len(events), err)
			}
			sealed[i] = &s
		}
		return next.Publish(ctx, topic, sealed...)
	})
}

// notSealed returns the error of a Publish that stores none of its n events, because event i cannot
// be sealed.
func notSealed(topic string, i, n int, err error) error {
	if f, ok := errors.AsType[*eventbus.FieldError](err); ok {
		f.Field = fmt.Sprintf("events[%d].%s", i, f.Field)
		return f
	}
	err = fmt.Errorf("eventbus: envelope: seal events[%d]: %w", i, err)
	return &eventbus.PublishError{Topic: topic, Errors: slices.Repeat([]error{err}, n)}
}

// seal applies all steps to e, unless e is already sealed. service is the default of e.Source.
func (v *Envelope) seal(ctx context.Context, e *eventbus.Event, service string) error {
	if done, err := v.isSealed(ctx, e); done || err != nil {
		return err
	}
	if n := len(e.Payload); n > v.o.MaxPayload {
		return &eventbus.FieldError{
			Field: "Payload", Err: eventbus.ErrTooLarge,
			Reason: fmt.Sprintf("has %d bytes, more than EnvelopeOptions.MaxPayload, %d", n, v.o.MaxPayload),
		}
	}
	e.Headers = append(make(eventbus.Headers, 0, len(e.Headers)+envelopeHeaders), e.Headers...)
	if v.encrypt != nil || v.sign != nil {
		e.Source = cmp.Or(e.Source, service)
		if e.ID == "" {
			id, err := uuid.NewV7()
			if err != nil {
				return fmt.Errorf("make an ID: %w", err)
			}
			e.ID = id.String()
		}
		if e.Time.IsZero() {
			e.Time = time.Now().Round(0)
		}
		e.Headers.Set(idHeader, e.ID)
	}
	v.compress.seal(e)
	if err := v.encrypt.seal(e, v.o.Headers); err != nil {
		return err
	}
	if err := v.o.ClaimCheck.seal(ctx, e); err != nil {
		return err
	}
	return v.sign.seal(e, v.o.Headers)
}

// Open opens the stored event e, for programs that read a topic without a group. An event to which
// no step was applied stays as it is, if AcceptPlain and AcceptUnsigned allow that. After an error
// e is unchanged. If retrying cannot help, the error is marked with [eventbus.Permanent]. Errors
// may contain key IDs and names in a [BlobStore], but no keys, payloads or other header values.
func (v *Envelope) Open(ctx context.Context, e *eventbus.Event) error {
	return v.openWith(ctx, e, true)
}

// openWith implements Open. If strict is false, it accepts events that are neither encrypted nor
// signed.
func (v *Envelope) openWith(ctx context.Context, e *eventbus.Event, strict bool) error {
	opened := *e
	opened.Headers = slices.Clone(e.Headers)
	if err := v.open(ctx, &opened, strict); err != nil {
		return fmt.Errorf("eventbus: envelope: open event %q: %w", e.ID, err)
	}
	opened.Headers = slices.DeleteFunc(opened.Headers, hasEnvelopes)
	*e = opened
	return nil
}

func (v *Envelope) open(ctx context.Context, e *eventbus.Event, strict bool) error {
	if err := v.sign.open(e, v.o.Headers, strict); err != nil {
		return err
	}
	if err := v.o.ClaimCheck.open(ctx, e, v.o.MaxPayload); err != nil {
		return err
	}
	if err := v.encrypt.open(e, v.o.Headers, strict); err != nil {
		return err
	}
	if err := v.compress.open(e); err != nil {
		return err
	}
	if n := len(e.Payload); n > v.o.MaxPayload && (strict || slices.ContainsFunc(e.Headers, hasEnvelopes)) {
		return permanent("%w: the payload has %d bytes, more than %d", eventbus.ErrTooLarge, n, v.o.MaxPayload)
	}
	return nil
}

func isEnvelopes(name string) bool {
	switch name {
	case idHeader, keyHeader, claimHeader, signatureHeader:
		return true
	}
	return false
}

func hasEnvelopes(h eventbus.Header) bool { return isEnvelopes(h.Name) }

// isSealed reports whether e is already sealed. If e has envelope headers but v cannot open it,
// isSealed returns an error, because such an event would be stored unprotected.
func (v *Envelope) isSealed(ctx context.Context, e *eventbus.Event) (bool, error) {
	i := slices.IndexFunc(e.Headers, hasEnvelopes)
	if i < 0 {
		return false, nil
	}
	_, encrypted := e.Headers.Lookup(keyHeader)
	_, signed := e.Headers.Lookup(signatureHeader)
	if v.encrypt != nil && !encrypted || v.sign != nil && !signed {
		return false, &eventbus.FieldError{Field: "Headers[" + e.Headers[i].Name + "]", Reason: "is reserved for middleware.Envelope"}
	}
	opened := *e
	if err := v.Open(ctx, &opened); err != nil {
		return false, fmt.Errorf("it looks sealed, but cannot be opened: %w", err)
	}
	return true, nil
}

// permanent returns an error after which the event is not retried.
func permanent(format string, args ...any) error {
	return eventbus.Permanent(fmt.Errorf(format, args...))
}

// bound returns the canonical form of the attributes and headers of e that a step, such as Sign,
// protects. Each step passes its own text as use, so that no two steps produce the same form. Parts
// are prefixed with their length, and a missing header differs from an empty one.
//
// The form contains the ID under which e was first published, because a dead letter has another ID,
// and not the topic, because a dead letter is in another topic.
func bound(use string, e *eventbus.Event, headers ...[]string) []byte {
	b := part(nil, use)
	for _, attribute := range []string{
		e.Headers.Get(idHeader), e.Key, e.Type, e.Source, e.Subject, e.ContentType,
		e.Time.UTC().Format(time.RFC3339Nano),
	} {
		b = part(b, attribute)
	}
	for _, names := range headers {
		for _, name := range names {
			if value, ok := e.Headers.Lookup(name); ok {
				b = part(part(b, name), value)
			}
		}
	}
	return b
}

func part(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// checkID returns an error if the protected ID is not the ID of e. A dead letter may differ,
// because it is stored under an ID of its own.
func checkID(e *eventbus.Event) error {
	id, ok := e.Headers.Lookup(idHeader)
	if !ok {
		return permanent("lacks the header %s", idHeader)
	}
	if _, dead := eventbus.DeadLetterOf(e); !dead && id != e.ID {
		return permanent("was published under another ID")
	}
	return nil
}
