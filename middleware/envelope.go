package middleware

import (
	"cmp"
	"context"
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

// EnvelopeOptions say which of four steps an [Envelope] takes. A nil step is left out.
// Publishing takes the steps in the order of the fields, and handling in the opposite
// order.
type EnvelopeOptions struct {
	Compress   *Compress
	Encrypt    *Encrypt
	ClaimCheck *ClaimCheck
	Sign       *Sign

	// Topics reports whether events that are published to a topic are sealed. A received
	// event of another topic, such as a dead letter, is opened if it is sealed, and
	// accepted if it is not. Default: the events of all topics are sealed. Topics is called
	// from several goroutines.
	Topics func(topic string) bool

	// MaxPayload is the largest payload in bytes, of a published event before sealing and
	// of a received event after decompression. A handler and its envelope together use up
	// to three times as much memory. Default: eventbus.MaxPayload; with ClaimCheck 16 MiB.
	MaxPayload int

	// Headers are names of headers that Encrypt and Sign protect against changes. They
	// always protect the payload, and the attributes except TTL and Retry, which a dead
	// letter does not have. Do not name a header that another program adds after the event
	// was sealed.
	Headers []string
}

// An Envelope seals events when they are published, and opens them before they are handled.
// Its [EnvelopeOptions] choose the steps. Every combination of steps is valid, and their
// order is fixed. Payloads are compressed before they are encrypted, because encrypted data
// cannot be compressed. The store of a ClaimCheck gets encrypted payloads. The signature is
// checked before any other part is read.
//
// All programs of a topic need the same steps. An envelope without Compress does not
// decompress, and an envelope without Sign checks no signature. Encrypt and Sign refuse
// unprotected events, unless AcceptPlain or AcceptUnsigned is set. An event that cannot be
// opened does not reach the handler. It goes to the dead-letter topic, still sealed. But
// first it is retried after an unknown key ID, because the program may get the key later.
// It is also retried after an error of a [BlobStore], or if the envelope lacks Encrypt or
// ClaimCheck.
//
// An event stays sealed in its topic and as a dead letter. A handler of the dead-letter
// topic on a bus with the envelope sees the opened event. The function Retry.Delay gets the
// sealed event. Programs that read a topic without a group call Open. A sealed event that
// is published again is stored as it is; Publish fails if the envelope cannot open it.
//
// The methods of an Envelope are safe for concurrent use.
type Envelope struct {
	o        EnvelopeOptions
	compress *compressor
	encrypt  *encrypter
	sign     *signer
}

// NewEnvelope returns an envelope with the steps of o. If o is invalid, the error is a
// *eventbus.FieldError, whose text has no secret.
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

// Install adds the envelope to the options of a bus. Publishing then seals after all other
// middleware, and handling opens before all other middleware. Call Install after all other
// middleware is set, and then pass *o to eventbus.New. Set Service in *o, not in a copy.
func (v *Envelope) Install(o *eventbus.Options) {
	o.Middleware = slices.Insert(slices.Clone(o.Middleware), 0, v.opening)
	sealing := func(next eventbus.Publisher) eventbus.Publisher { // eventbus.New calls it, so o.Service may still change
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

// sealing returns a publisher that publishes sealed copies of events by next, so that a
// middleware around it still sees the events as they were. service is the default Source.
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

// notSealed returns the error of a call of Publish that stores none of its n events,
// because event i cannot be sealed.
func notSealed(topic string, i, n int, err error) error {
	if f, ok := errors.AsType[*eventbus.FieldError](err); ok {
		f.Field = fmt.Sprintf("events[%d].%s", i, f.Field)
		return f
	}
	err = fmt.Errorf("eventbus: envelope: seal events[%d]: %w", i, err)
	return &eventbus.PublishError{Topic: topic, Errors: slices.Repeat([]error{err}, n)}
}

// seal seals e by all steps, unless e is sealed already. service is the default of
// e.Source.
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

// Open opens the stored event e, for programs that read a topic without a group. An event
// to which no step was applied stays as it is, if AcceptPlain and AcceptUnsigned allow
// that. After an error e is unchanged. If no retry can help, the error is marked by
// [eventbus.Permanent]. Errors may contain key IDs and names of a [BlobStore], but no keys,
// payloads or other header values.
func (v *Envelope) Open(ctx context.Context, e *eventbus.Event) error {
	return v.openWith(ctx, e, true)
}

// openWith does the work of Open. If strict is false, it accepts an event that is neither
// encrypted nor signed.
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

// isSealed reports whether e is sealed already. It returns an error if e has headers of an
// envelope but cannot be opened by v. Such an event would be stored unprotected.
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

// permanent returns an error marked by [eventbus.Permanent], after which the event is not
// retried.
func permanent(format string, args ...any) error {
	return eventbus.Permanent(fmt.Errorf(format, args...))
}
