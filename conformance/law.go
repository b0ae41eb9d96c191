package conformance

import (
	"slices"

	"github.com/seed41896749/eventbus/backend"
)

// A law is one promise and its test.
type law struct {
	id        string   // as in the catalogue of cases, or C and a number; those of the bus with B. before it
	name      string   // a few words joined by '-'; id and name are unique together
	promise   string   // what holds, in words
	needs     []need   // what the backend must claim for the law to apply
	saboteurs []string // those in packages badbackend and badbus that break it, at least one

	again     bool // what was settled may come again here
	uncounted bool // attempt numbers mean nothing here: a handler changes them, or time is turned back

	// One of them tests it: on the backend, or on a bus on the backend.
	driver func(*driverEnv)
	bus    func(*busEnv)
}

func (l law) subtest() string { return l.id + "-" + l.name }

// goesBy reports whether a suite means l, or l among others, by this ID or name.
func (l law) goesBy(id string) bool { return id == l.id || id == l.subtest() }

// laws returns all of them, in the order in which they are best read.
func laws() []law {
	return slices.Concat(
		publishLaws, contentLaws, onceLaws, positionLaws, receiveLaws, wakeLaws, groupLaws, startLaws,
		ackLaws, leaseLaws, delayLaws, delayEndLaws, extendLaws, fenceLaws, readLaws, statsLaws, adminLaws, declareLaws, maintainLaws, closeLaws,
		lostLaws, crashLaws, peerLaws, outageLaws,
		busPublishLaws, busDeliverLaws, busLeaseLaws, busRetryLaws, busOrderLaws, busModeLaws, busLifeLaws, busFaultLaws,
	)
}

// A need is a verb or a fact that a backend may claim.
type need struct {
	what    string
	claimed func(*driverEnv) bool
}

var (
	needDelayer    = need{"Delayer", sourceVerb[backend.Delayer]}
	needExtender   = need{"Extender", sourceVerb[backend.Extender]}
	needMaintainer = need{"Maintainer", backendVerb[backend.Maintainer]}
	needReader     = need{"Reader", backendVerb[backend.Reader]}
	needStatser    = need{"Statser", backendVerb[backend.Statser]}
	needAdmin      = need{"Admin", backendVerb[backend.Admin]}
	needDeclarer   = need{"Declarer", backendVerb[backend.Declarer]}
	needPinger     = need{"Pinger", backendVerb[backend.Pinger]}

	needRest = need{"Delayer or Extender", func(e *driverEnv) bool {
		return sourceVerb[backend.Delayer](e) || sourceVerb[backend.Extender](e)
	}}

	needOnce   = need{"Limits.OnceWindow", func(e *driverEnv) bool { return e.limits.OnceWindow > 0 }}
	needRefund = need{"Limits.Refund", func(e *driverEnv) bool { return e.limits.Refund }}
	needFence  = need{"Limits.FencedAcks", func(e *driverEnv) bool { return e.limits.FencedAcks }}

	// The window and the limit must be such that a test can go past them.
	needShortWindow = need{"Limits.OnceWindow of at most 5 leases", func(e *driverEnv) bool {
		return e.limits.OnceWindow > 0 && e.limits.OnceWindow <= 5*e.lease
	}}
	needPayloadLimit = need{"Limits.Payload of at most 16 MiB", func(e *driverEnv) bool {
		return e.limits.Payload > 0 && e.limits.Payload <= 16<<20
	}}
	needLongDelay = need{"Limits.Delay of 20 leases", func(e *driverEnv) bool {
		return e.limits.Delay == 0 || e.limits.Delay >= 20*e.lease
	}}
	needBound = need{"Suite.NewBounded", func(e *driverEnv) bool { return e.suite.NewBounded != nil }}
	needPeer  = need{"Suite.Peer", func(e *driverEnv) bool { return e.suite.Peer != nil }}

	needDown      = need{"Faults.Down", func(e *driverEnv) bool { return e.suite.Faults.Down != nil }}
	needFreeze    = need{"Faults.Freeze", func(e *driverEnv) bool { return e.suite.Faults.Freeze != nil }}
	needSwallow   = need{"Faults.Swallow", func(e *driverEnv) bool { return e.suite.Faults.Swallow != nil }}
	needCut       = need{"Faults.Cut", func(e *driverEnv) bool { return e.suite.Faults.Cut != nil }}
	needDropReply = need{"Faults.DropReply", func(e *driverEnv) bool { return e.suite.Faults.DropReply != nil }}
	needRestart   = need{"Faults.Restart", func(e *driverEnv) bool { return e.suite.Faults.Restart != nil }}
	needKill      = need{"Faults.Kill", func(e *driverEnv) bool { return e.suite.Faults.Kill != nil }}
	needLose      = need{"Faults.Lose", func(e *driverEnv) bool { return e.suite.Faults.Lose != nil }}
	needCommands  = need{"Faults.Commands", func(e *driverEnv) bool { return e.suite.Faults.Commands != nil }}
)

func backendVerb[T any](e *driverEnv) bool {
	_, ok := backend.As[T](e.b)
	return ok
}

func sourceVerb[T any](e *driverEnv) bool {
	src := e.attachAs(backend.Config{Topic: "probe", Group: "probe"})
	_, ok := backend.As[T](src)
	e.must(src.Close())
	return ok
}
