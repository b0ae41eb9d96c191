package middleware

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus"
)

// A BlobStore keeps large payloads for a [ClaimCheck]. A payload's name has 26 characters from A–Z
// and 2–7, and no name is used twice. The methods must be safe for concurrent use.
type BlobStore interface {
	// Put stores data under name. It must not return before the data is durable, because the event
	// is published next.
	Put(ctx context.Context, name string, data []byte) error

	// Get opens the data that Put stored under name. The error may match fs.ErrNotExist only if the
	// data is permanently gone, because the event is then dead-lettered.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
}

// ClaimCheck is a step of an [Envelope] that moves payloads of at least MinSize, measured after
// compression and encryption, to a store. The event then carries a reference with size and SHA-256,
// so a payload may be larger than eventbus.MaxPayload.
//
// A payload is stored before its event is published, so that a handler always finds it. If Publish
// then fails, or drops the event as a duplicate, the payload stays in the store without an event.
//
// Payloads are not deleted when their event is handled, because other groups and dead letters may
// still need them. Delete old ones yourself, for example with [FileStore.DeleteOlder]. Choose an
// age that exceeds the time events stay in the topic and in its dead-letter topic, including
// redrives.
//
// If a payload is gone, damaged, or larger than EnvelopeOptions.MaxPayload, its event fails
// permanently. After any other error of the store the event is retried.
type ClaimCheck struct {
	Store   BlobStore
	MinSize int // bytes; default 256 KiB
}

const largeBlob = 1 << 20 // memory for more bytes is taken when they arrive, because size may be forged

const blobNameLen = 26 // the length of what rand.Text returns

// overhead is the most that compression and encryption add to a payload, in bytes.
const overhead = 1 << 10

// seal stores a large payload and replaces it with a reference in the headers of e. A nil c does
// nothing.
func (c *ClaimCheck) seal(ctx context.Context, e *eventbus.Event) error {
	if c == nil || len(e.Payload) < c.MinSize {
		return nil
	}
	name, digest := rand.Text(), sha256.Sum256(e.Payload)
	if err := c.Store.Put(ctx, name, e.Payload); err != nil {
		return fmt.Errorf("store the payload: %w", err)
	}
	e.Headers.Set(claimHeader, fmt.Sprintf("%s %d %x", name, len(e.Payload), digest))
	e.Payload = nil
	return nil
}

// open fetches the payload of e from the store if e has a reference. It refuses payloads larger
// than limit, and any reference if c is nil.
func (c *ClaimCheck) open(ctx context.Context, e *eventbus.Event, limit int) error {
	value, claimed := e.Headers.Lookup(claimHeader)
	switch {
	case !claimed:
		return nil
	case c == nil:
		return errors.New("the payload is in a store, but EnvelopeOptions.ClaimCheck is nil")
	}
	name, size, digest, ok := parseClaim(value)
	if !ok {
		return permanent("the header %s has another form", claimHeader)
	}
	if size-overhead > limit {
		return permanent("fetch the payload: %w: %d bytes, more than %d", eventbus.ErrTooLarge, size, limit)
	}
	payload, err := c.fetch(ctx, name, size)
	switch sum := sha256.Sum256(payload); {
	case errors.Is(err, fs.ErrNotExist):
		return permanent("fetch the payload: %w", err)
	case err != nil:
		return fmt.Errorf("fetch the payload: %w", err)
	case len(payload) < size:
		return permanent("fetch the payload: it is damaged: it has %d bytes instead of %d", len(payload), size)
	case hex.EncodeToString(sum[:]) != digest:
		return permanent("fetch the payload: it is damaged: its SHA-256 differs")
	}
	e.Payload = payload
	return nil
}

// fetch returns at most size bytes of the stored payload.
func (c *ClaimCheck) fetch(ctx context.Context, name string, size int) ([]byte, error) {
	r, err := c.Store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	payload := bytes.NewBuffer(make([]byte, 0, min(size, largeBlob)+bytes.MinRead))
	_, err = payload.ReadFrom(io.LimitReader(r, int64(size)))
	return payload.Bytes(), err
}

// parseClaim splits a reference and validates every part, because anybody may have written the
// header.
func parseClaim(value string) (name string, size int, digest string, ok bool) {
	parts := strings.Split(value, " ")
	if len(parts) != 3 || !isBlobName(parts[0]) || len(parts[2]) != hex.EncodedLen(sha256.Size) {
		return "", 0, "", false
	}
	size, err := strconv.Atoi(parts[1])
	return parts[0], size, parts[2], err == nil && size >= 0
}

// isBlobName reports whether name could come from rand.Text.
func isBlobName(name string) bool {
	for _, c := range []byte(name) {
		if !('A' <= c && c <= 'Z' || '2' <= c && c <= '7') {
			return false
		}
	}
	return len(name) == blobNameLen
}
