package faults

import (
	"context"
	"sync"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

// An Op is an operation of a backend or of one of its sources.
type Op string

// The operations.
const (
	Publish     Op = "Publish"
	Attach      Op = "Attach"
	Receive     Op = "Receive"
	Ack         Op = "Ack"
	Delay       Op = "Delay"
	Extend      Op = "Extend"
	Leave       Op = "Source.Close"
	Close       Op = "Close"
	Read        Op = "Read"
	Remove      Op = "Remove"
	Stats       Op = "Stats"
	Maintain    Op = "Maintain"
	Declare     Op = "Declare"
	Ping        Op = "Ping"
	Now         Op = "Now"
	Topics      Op = "Topics"
	Groups      Op = "Groups"
	DeleteTopic Op = "DeleteTopic"
	DeleteGroup Op = "DeleteGroup"
	ResetGroup  Op = "ResetGroup"
	Pause       Op = "Pause"
	Resume      Op = "Resume"
	Settle      Op = "Settle"
	Settled     Op = "Settled"
)

// settling lists the operations of a source that settle or extend deliveries.
var settling = []Op{Ack, Delay, Extend}

// A Call is one call of an operation: its arguments and, after Next, its results. An effect
// may change both. Messages and deliveries are copies, so a change reaches the backend and
// not the caller.
type Call struct {
	Op     Op
	Store  *store
	Source *source // the source of Receive, Ack, Delay, Extend and Leave; a result of Attach

	Ctx          context.Context
	Topic, Group string
	Config       backend.Config        // of Attach
	Messages     []*backend.Message    // of Publish
	Acked        []*backend.Delivery   // of Ack and Extend
	Delayed      []backend.Delayed     // of Delay
	Max          int                   // of Receive and Read
	MaxBytes     int64                 // of Receive
	Start        backend.Start         // of Read and ResetGroup
	Positions    []string              // of Remove, Settle and Settled
	Pause        backend.Pause         // of Pause
	Declaration  backend.Declaration   // of Declare
	Deliveries   []backend.Delivery    // result of Receive
	Page         []backend.Message     // result of Read
	Names        []string              // result of Topics and Groups
	Stats        backend.Stats         // result of Stats
	Settings     backend.TopicSettings // result of Declare
	Settled      []bool                // result of Settle and Settled
	Wait         time.Duration         // result of Maintain
	Time         time.Time             // result of Now
	Err          error

	do func(*Call)
}

// Next makes the call.
func (c *Call) Next() { c.do(c) }

// An effect is what happens in place of a call. It makes the real call with Next.
type effect func(c *Call)

// group names the group of the call.
func (c *Call) group() string { return c.Topic + "/" + c.Group }

// A set is a set of strings, safe for concurrent use.
type set struct{ m sync.Map }

// add reports whether text is new.
func (s *set) add(text string) bool { _, old := s.m.LoadOrStore(text, true); return !old }

func (s *set) has(text string) bool { _, ok := s.m.Load(text); return ok }
