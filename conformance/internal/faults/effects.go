package faults

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// nothing makes no call and returns no error.
func nothing(*Call) {}

// before changes the arguments of a call.
func before(change func(*Call)) effect {
	return func(c *Call) {
		change(c)
		c.Next()
	}
}

// after changes the results of a call.
func after(change func(*Call)) effect {
	return func(c *Call) {
		c.Next()
		change(c)
	}
}

// when lets the fault happen only in the calls that the condition selects.
func when(selects func(*Call) bool, do effect) effect {
	return func(c *Call) {
		if selects(c) {
			do(c)
		} else {
			c.Next()
		}
	}
}

// delivery changes each delivery of a Receive.
func delivery(change func(d *backend.Delivery)) effect {
	return after(func(c *Call) {
		for i := range c.Deliveries {
			change(&c.Deliveries[i])
		}
	})
}

// message changes each message of a Publish before it is stored.
func message(change func(m *backend.Message)) effect {
	return before(func(c *Call) {
		for _, m := range c.Messages {
			change(m)
		}
	})
}

// returns replaces errors of the class from by the error to.
func returns(from, to error) effect {
	return after(func(c *Call) {
		if errors.Is(c.Err, from) {
			c.Err = to
		}
	})
}

// everyGroup makes the call for each group of the topic.
func everyGroup(c *Call) {
	groups, _ := c.Store.Store.Groups(c.Ctx, c.Topic) // the last call has the error
	asked := c.Group
	for _, g := range groups {
		if g != asked {
			c.Group = g
			c.Next()
		}
	}
	c.Group = asked
	c.Next()
}

// owned copies deliveries that are lent to a call.
func owned(ds []*backend.Delivery) []*backend.Delivery {
	own := make([]backend.Delivery, len(ds))
	for i, d := range ds {
		own[i] = *d
	}
	return backend.Lend(own)
}

// one makes the Publish of each message in a call of its own, by the effect do. The call of
// do has exactly one message.
func one(do effect) effect {
	return func(c *Call) {
		errs := make([]error, len(c.Messages))
		for i, m := range c.Messages {
			single := *c
			single.Messages = []*backend.Message{m}
			do(&single)
			errs[i] = single.Err
		}
		c.Err = backend.AsBatchError(errs)
	}
}

// plain makes a Publish without Once.
func plain(c *Call) {
	for _, m := range c.Messages {
		m.Once = false
	}
	c.Next()
}

// rest waits for d, or until ctx is done.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// settleAll settles all messages of every group of the topic.
func (c *Call) settleAll() {
	good := c.Store.Store
	groups, _ := good.Groups(c.Ctx, c.Topic)
	for _, g := range groups {
		_ = good.ResetGroup(c.Ctx, c.Topic, g, backend.StartLatest) // it exists
	}
}

// stored returns all messages of the topic.
func (c *Call) stored() []backend.Message {
	all, _ := c.Store.Store.Read(c.Ctx, c.Topic, backend.StartEarliest, 1<<20)
	return all
}

// suffixed selects the calls whose topic ends with one of the suffixes.
func suffixed(suffixes ...string) func(*Call) bool {
	return func(c *Call) bool {
		return slices.ContainsFunc(suffixes, func(s string) bool {
			return len(c.Topic) >= len(s) && c.Topic[len(c.Topic)-len(s):] == s
		})
	}
}
