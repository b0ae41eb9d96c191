package partition

import (
	"context"
	"errors"
	"time"
)

const lookForNumber = 2 * time.Second // time between two looks of a member at the number

// A heed lets a member learn that the number of partitions has changed. It is used by one goroutine,
// but for epochs.
type heed struct {
	looked time.Time
	agreed bool // once; until then the member takes no token
	epochs int  // the epochs of its claims begin after it; constant once agreed
}

// never reports whether no look has found the number that the program states.
func (h *heed) never() bool { return !h.agreed }

// look looks at the number now and then. If it is another one, the subscription fails and gives its
// partitions back. A command that is changing the number waits until all members have ended. So a
// member goes on meanwhile, but does not begin: its note is older than its first look, so that either
// the command sees the note, or the member sees the command.
func (h *heed) look(ctx context.Context, x *Coordinator) error {
	now := time.Now()
	if h.agreed && now.Sub(h.looked) < lookForNumber {
		return nil
	}
	h.looked = now
	l, err := agree(ctx, x.Backend, x.Topic, x.Number)
	other, ok := errors.AsType[*NumberError](err)
	switch {
	case err == nil && !h.agreed:
		h.agreed, h.epochs = true, l.epochs // once, because take reads epochs after its first quota
	case ok && other.Next == 0:
		x.Owner.Failed(err)
		x.Drain()
		return nil
	case ok && h.agreed:
		return nil
	}
	return err
}
