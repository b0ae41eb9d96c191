package demo

import (
	"fmt"
	"hash/maphash"
	"io"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
)

// An Input reads events and refuses an ID that it has read before. It remembers a hash of each ID.
type Input struct {
	*ndjson.Reader
	seed maphash.Seed
	seen map[uint64]struct{}
}

// NewInput returns an Input that reads from r. The name appears in errors.
func NewInput(name string, r io.Reader) *Input {
	return &Input{Reader: ndjson.NewReader(name, r), seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
}

// Next returns the next event and the line it is on, or io.EOF.
func (in *Input) Next() (*eventbus.Event, int, error) {
	e, line, err := in.Reader.Next()
	if err != nil || e.ID == "" {
		return e, line, err
	}
	hash := maphash.String(in.seed, e.ID)
	if _, ok := in.seen[hash]; ok {
		return nil, line, in.At(line, fmt.Errorf("the id %q is there twice", e.ID))
	}
	in.seen[hash] = struct{}{}
	return e, line, nil
}
