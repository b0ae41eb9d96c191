package middleware

import (
	"cmp"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/seed41896749/eventbus"
)

// Compress is a step of an [Envelope] that compresses payloads with Zstandard (RFC 8878) and sets
// the header "content-encoding: zstd". A payload is left alone if it is smaller than MinSize, if
// compression would not make it smaller, or if its event already has a content-encoding.
//
// A received payload is decompressed if its content-encoding is zstd, even if another program
// compressed it. If it is damaged, or larger than EnvelopeOptions.MaxPayload once decompressed, the
// error is permanent. Finding that out takes memory for MaxPayload bytes, or 8 MiB if that is more.
//
// The size of a compressed and encrypted event reveals how well its payload compresses. Don't
// combine Compress and Encrypt if an attacker can choose part of a payload and see the sizes of
// events.
type Compress struct {
	MinSize int // bytes; default 1 KiB
}

const encoding = "zstd"

// windowSize is the window that every decoder should support (RFC 8878, 3.1.1.1.2).
const windowSize = 8 << 20

// A compressor implements Compress. A nil compressor does nothing.
type compressor struct {
	min, max int
	encoder  *zstd.Encoder
	decoder  *zstd.Decoder
}

func newCompressor(o *Compress, limit int) (c *compressor, err error) {
	if o == nil {
		return nil, nil
	}
	c = &compressor{min: cmp.Or(o.MinSize, 1<<10), max: limit}
	if c.encoder, err = zstd.NewWriter(nil); err != nil {
		return nil, fmt.Errorf("eventbus: envelope: %w", err)
	}
	c.encoder.EncodeAll(nil, nil) // makes the encoder create its channel here, outside of any synctest bubble, so that each bubble may use it
	c.decoder, err = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(uint64(max(limit, windowSize))), zstd.WithDecoderConcurrency(0))
	if err != nil {
		return nil, fmt.Errorf("eventbus: envelope: %w", err)
	}
	return c, nil
}

func (c *compressor) seal(e *eventbus.Event) {
	if c == nil || len(e.Payload) < c.min {
		return
	}
	if _, encoded := e.Headers.Lookup(encodingHeader); encoded {
		return
	}
	if small := c.encoder.EncodeAll(e.Payload, nil); len(small) < len(e.Payload) {
		e.Payload = small
		e.Headers.Set(encodingHeader, encoding)
	}
}

func (c *compressor) open(e *eventbus.Event) error {
	if c == nil || e.Headers.Get(encodingHeader) != encoding {
		return nil
	}
	payload, err := c.decoder.DecodeAll(e.Payload, nil)
	if len(e.Payload) == 0 { // DecodeAll accepts this
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return permanent("decompress: %w", err)
	}
	if len(payload) > c.max {
		return permanent("decompress: %w: more than %d bytes", eventbus.ErrTooLarge, c.max)
	}
	e.Payload = payload
	e.Headers.Del(encodingHeader)
	return nil
}
