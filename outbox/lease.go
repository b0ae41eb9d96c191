package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// A lease is the right to be the active relay. It is a row of the database with the time at which
// it expires, by the database's clock. It only keeps two relays from publishing the same rows; the
// order of keys does not depend on it; see relay.
type lease struct {
	o     *Outbox
	owner string // unique among all calls of Relay
}

func (o *Outbox) newLease() *lease {
	host, _ := os.Hostname()
	return &lease{o, fmt.Sprintf("%.100s/%d/%s", host, os.Getpid(), rand.Text())}
}

var errLeaseLost = errors.New("the lease of the relay has expired")

// take takes or renews the lease, and reports whether l has it. If not, left is how long the
// current owner still has it.
func (l *lease) take(ctx context.Context) (mine bool, left time.Duration, err error) {
	owner, left, err := l.look(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		d := l.o.d
		create := d.statement(d.ignore, " ", l.o.tables.relay, " (id, owner, expires, span) VALUES (1, '', 0, 0)", d.skip)
		if _, err = create.exec(ctx, l.o.db); err == nil {
			owner, left, err = l.look(ctx)
		}
	}
	if err != nil || owner != l.owner && left > 0 {
		return false, left, err
	}
	if err := l.claim(ctx); err != nil {
		return false, 0, err
	}
	owner, left, err = l.look(ctx)
	return err == nil && owner == l.owner, left, err
}

// look returns the owner of the lease and how long it still has it. A lease that seems to last
// longer than its span counts as expired, because the database's clock must have been set back.
func (l *lease) look(ctx context.Context) (owner string, left time.Duration, err error) {
	var expires, span, now int64
	s := l.o.d.statement("SELECT owner, expires, span, ", l.o.d.now, " FROM ", l.o.tables.relay, " WHERE id = 1")
	if err := s.row(ctx, l.o.db).Scan(&owner, &expires, &span, &now); err != nil {
		return "", 0, err
	}
	if expires-now > span {
		return owner, 0, nil
	}
	return owner, time.Duration(expires-now) * time.Millisecond, nil
}

// claim makes l the owner, unless another relay has become the owner since l last checked.
func (l *lease) claim(ctx context.Context) error {
	span, now := l.o.options.Lease.Milliseconds(), l.o.d.now
	s := l.o.d.statement("UPDATE ", l.o.tables.relay, " SET owner = ").arg(l.owner).
		add(", expires = ", now, " + ").arg(span).add(", span = ").arg(span).
		add(" WHERE id = 1 AND (owner = ").arg(l.owner).add(" OR expires <= ", now, " OR expires > ", now, " + span)")
	_, err := s.exec(ctx, l.o.db)
	return err
}

// release ends the lease, so that another relay can take over at once.
func (l *lease) release(ctx context.Context) error {
	s := l.o.d.statement("UPDATE ", l.o.tables.relay, " SET expires = 0 WHERE id = 1 AND owner = ").arg(l.owner)
	_, err := s.exec(ctx, l.o.db)
	return err
}

// await waits until l has the lease, and returns a time until which it certainly doesn't expire. It
// returns false if ctx ends.
func (l *lease) await(ctx context.Context) (until time.Time, ok bool) {
	retry := newBackOff()
	for ctx.Err() == nil {
		began := time.Now()
		mine, wait, err := l.take(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			wait = retry.NextBackOff()
			l.o.report.failed(Failure{Op: "lease", Next: wait, Err: err})
		case mine:
			return began.Add(l.o.options.Lease), true
		default:
			retry.Reset()
			wait = min(wait, l.o.options.Lease/2) + time.Millisecond // the owner may release it early
		}
		sleep(ctx, wait)
	}
	return time.Time{}, false
}

// hold renews the lease while it calls f with a context that ends when the lease expires. It
// returns when f has returned.
func (l *lease) hold(ctx context.Context, until time.Time, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	expiry := time.AfterFunc(time.Until(until), func() { cancel(errLeaseLost) })
	defer expiry.Stop()
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for sleep(ctx, l.o.options.Lease/4) {
			began := time.Now()
			mine, _, err := l.take(ctx)
			switch {
			case err != nil && ctx.Err() == nil:
				l.o.report.failed(Failure{Op: "lease", Next: l.o.options.Lease / 4, Err: err})
			case err == nil && !mine:
				cancel(errLeaseLost)
			case err == nil:
				expiry.Reset(time.Until(began.Add(l.o.options.Lease)))
			}
		}
	})
	err := f(ctx)
	cancel(nil)
	renewing.Wait()
	return err
}
