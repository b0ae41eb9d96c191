package partition

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/wait"
)

// beat writes a note each second, and learns from the notes of others how many tokens this member
// may have. At the end it removes its note.
func (x *Coordinator) beat() {
	var lost astray
	learned := time.Now()
	for written := (time.Time{}); x.ctx.Err() == nil; wait.Sleep(x.ctx, lookEvery) {
		writes := time.Since(written) >= beatEvery
		if writes {
			written = time.Now()
		}
		err := x.Guard("Read", func() error { return x.beatOnce(writes, &lost) })
		x.trouble("members", err)
		if err == nil {
			learned = time.Now()
		} else if time.Since(learned) >= deadAfter && !x.heed.never() {
			x.takeFree()
		}
	}
	ctx, cancel := context.WithTimeout(x.live, callTime)
	defer cancel()
	x.trouble("leave", x.Guard("Remove", func() error { return x.roster.leave(ctx) }))
}

// beatOnce looks at the notes once. With writes it writes one before.
func (x *Coordinator) beatOnce(writes bool, lost *astray) error {
	ctx, cancel := context.WithTimeout(x.ctx, callTime)
	defer cancel()
	if writes {
		var owned []int
		for _, c := range x.Owned() {
			owned = append(owned, c.Partition)
		}
		if err := x.roster.write(ctx, owned, x.heed.never()); err != nil {
			return ended(x.ctx, err)
		}
	}
	waited := x.heed.never()
	if err := x.heed.look(ctx, x); err != nil || x.heed.never() {
		return ended(x.ctx, err)
	}
	if waited { // the others make room at once
		if err := x.roster.write(ctx, nil, false); err != nil {
			return ended(x.ctx, err)
		}
	}
	notes, err := x.roster.read(ctx)
	if err != nil {
		return ended(x.ctx, err)
	}
	spent := slices.DeleteFunc(x.census.look(time.Now(), notes), func(p string) bool { return slices.Contains(x.roster.own, p) })
	x.allow(Quota(x.Number, 1+x.census.members(x.Group, x.id)))
	if len(spent) > 0 {
		err = x.roster.remove(ctx, spent)
	}
	lost.seek(ctx, &x.Config)
	return ended(x.ctx, err)
}

// ended returns nil if ctx has ended, and otherwise err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// allow sets the quota. A member that has more gives back the rest; one that has fewer waits for
// tokens.
func (x *Coordinator) allow(quota int) {
	x.mu.Lock()
	less := quota < x.quota
	x.quota = quota
	if less && x.waiting != nil {
		x.waiting() // it asks for too many
	}
	x.mu.Unlock()
	wake(x.wakeTake)
	if less {
		x.shed(quota)
	}
}

// takeFree lets the member take all free tokens while it cannot learn its share. Otherwise the partitions
// of a member that dies meanwhile, or has given them back, would have no owner. A member that
// has too many gives them back when it learns its share.
func (x *Coordinator) takeFree() {
	x.mu.Lock()
	x.quota = x.Number
	x.mu.Unlock()
	wake(x.wakeTake)
}

// wants returns how many tokens the member may take now. If it may take some, ctx is the context of
// the Receive.
func (x *Coordinator) wants() (n int, t *tokens, ctx context.Context, end context.CancelFunc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n = x.quota - len(x.claims); n <= 0 || x.drains {
		return 0, nil, nil, nil
	}
	ctx, end = context.WithTimeout(x.ctx, takeWait)
	x.waiting = end
	return n, x.tokens, ctx, end
}

// take receives tokens while the member has fewer than its quota.
func (x *Coordinator) take() {
	halted := false
	for rest := leastRest; x.ctx.Err() == nil; {
		n, t, ctx, end := x.wants()
		if n <= 0 {
			x.trouble("receive", nil)
			select {
			case <-x.wakeTake:
			case <-x.ctx.Done():
			}
			continue
		}
		began := time.Now()
		var claims []*Claim
		err := x.Guard("Receive", func() (err error) { claims, err = t.receive(ctx, n, x.Lease); return err })
		over := ctx.Err() != nil
		end()
		if over && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
			err = nil
		}
		x.gain(t, claims)
		switch {
		case x.ctx.Err() != nil:
		case errors.Is(err, backend.ErrClosed):
			x.Owner.Failed(err)
			return
		case errors.Is(err, backend.ErrGone):
			err = x.Guard("Attach", x.reopen)
		}
		if halts := errors.Is(err, backend.ErrPaused); halts != halted {
			if halted = halts; halts {
				x.Notify(backend.Notice{Topic: OwnersTopic(x.Topic), Group: x.Group, Text: "no partition gets another owner here, because the group of the owners is paused", Err: err})
			}
		}
		if halted {
			x.trouble("receive", nil)
			wait.Sleep(x.ctx, lookForResume)
			continue
		}
		x.trouble("receive", ended(x.ctx, err))
		switch {
		case err != nil:
			wait.Sleep(x.ctx, rest)
			rest = min(2*rest, time.Second)
		case len(claims) == 0 && time.Since(began) < leastRest:
			wait.Sleep(x.ctx, leastRest)
		default:
			rest = leastRest
		}
	}
}

const (
	leastRest     = 20 * time.Millisecond
	lookForResume = time.Second // time between two looks whether the group of the owners is still paused
)

// gain makes new claims. Their tokens are extended first, because the Receive may have waited
// for long.
func (x *Coordinator) gain(t *tokens, claims []*Claim) {
	if len(claims) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(x.live, window(x.Lease))
	defer cancel()
	var lost []*Claim
	err := x.Guard("Extend", func() (err error) { lost, err = t.extend(ctx, claims); return err })
	x.trouble("extend", err)
	for i, c := range claims {
		if slices.Contains(lost, c) {
			continue
		}
		c.Epoch += x.heed.epochs
		if !c.Leases() {
			continue // not extended: it comes again when its lease has ended
		}
		if !x.admit(c, i) {
			_ = x.Guard("Delay", func() error { return t.giveBack(ctx, c) }) // if it fails, its lease ends
		}
	}
	x.watch()
	wake(x.wakeKeep)
}

// admit adds a claim, unless the member has enough.
func (x *Coordinator) admit(c *Claim, order int) bool {
	x.telling.Lock()
	defer x.telling.Unlock()
	x.mu.Lock()
	old := x.claims[c.Partition]
	if x.drains || old == nil && len(x.claims) >= x.quota {
		x.mu.Unlock()
		return false
	}
	c.since = c.since.Add(time.Duration(order)) // tokens of one Receive have an order too
	x.claims[c.Partition] = c
	x.mu.Unlock()
	if old != nil { // its lease has ended without notice
		old.lost.Store(true)
		x.Owner.Lost(old, ErrExpired)
	}
	x.Owner.Gained(c)
	return true
}

// reopen attaches again, because the owners' topic or the group was deleted.
func (x *Coordinator) reopen() error {
	for _, c := range x.Owned() {
		x.lose(c, ErrGone)
	}
	ctx, cancel := context.WithTimeout(x.ctx, 2*callTime)
	defer cancel()
	t, err := openTokens(ctx, x.Backend, x.Topic, x.Group, x.Number, x.Lease, x.Notify)
	if err != nil {
		return err
	}
	x.mu.Lock()
	old := x.tokens
	x.tokens = t
	x.mu.Unlock()
	_ = old.source.Close() // may fail, because the group is gone
	x.Notify(backend.Notice{Topic: OwnersTopic(x.Topic), Group: x.Group, Text: "the tokens of the partitions were deleted, and are made anew"})
	return nil
}
