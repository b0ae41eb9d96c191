package partition

import (
	"context"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

const (
	seekAstray = 10 * time.Second // time between two looks for events outside the partitions
	tellAstray = time.Hour        // time after which they are told again
)

// An astray looks for events in the topic itself. A program that states no partitions publishes
// there, and no member with partitions reads them.
type astray struct{ sought, told time.Time }

// seek looks now and then, and tells the operator of such events. A failed look changes nothing:
// the program may lack the right to read the topic.
func (a *astray) seek(ctx context.Context, c *Config) {
	now := time.Now()
	if now.Sub(a.sought) < seekAstray {
		return
	}
	a.sought = now
	ms, err := backend.Read(ctx, c.Backend, c.Topic, backend.StartEarliest, 1)
	switch {
	case err != nil || len(ms) > 0 && now.Sub(a.told) < tellAstray:
	case len(ms) == 0:
		a.told = time.Time{}
	default:
		a.told = now
		c.Notify(backend.Notice{Topic: c.Topic, Group: c.Group, Text: "the topic has events outside its partitions, which this group does not read, from " +
			strings.Clone(ms[0].Position) + " on: a program that does not state Partitions has published them"})
	}
}
