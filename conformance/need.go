package conformance

import "github.com/seed41896749/eventbus/backend"

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

	needOnce   = need{"Limits.OnceWindow", func(e *driverEnv) bool { return e.Limits.OnceWindow > 0 }}
	needRefund = need{"Limits.Refund", func(e *driverEnv) bool { return e.Limits.Refund }}
	needFence  = need{"Limits.FencedAcks", func(e *driverEnv) bool { return e.Limits.FencedAcks }}

	// The window and the limit must be such that a test can go past them.
	needShortWindow = need{"Limits.OnceWindow of at most 5 leases", func(e *driverEnv) bool {
		return e.Limits.OnceWindow > 0 && e.Limits.OnceWindow <= 5*e.Lease
	}}
	needPayloadLimit = need{"Limits.Payload of at most 16 MiB", func(e *driverEnv) bool {
		return e.Limits.Payload > 0 && e.Limits.Payload <= 16<<20
	}}
	needLongDelay = need{"Limits.Delay of 20 leases", func(e *driverEnv) bool {
		return e.Limits.Delay == 0 || e.Limits.Delay >= 20*e.Lease
	}}
	needBound = need{"Suite.NewBounded", func(e *driverEnv) bool { return e.Harness.NewBounded != nil }}
	needPeer  = need{"Suite.Peer", func(e *driverEnv) bool { return e.Harness.Peer != nil }}

	needDown      = need{"Faults.Down", func(e *driverEnv) bool { return e.Harness.Faults.Down != nil }}
	needFreeze    = need{"Faults.Freeze", func(e *driverEnv) bool { return e.Harness.Faults.Freeze != nil }}
	needSwallow   = need{"Faults.Swallow", func(e *driverEnv) bool { return e.Harness.Faults.Swallow != nil }}
	needCut       = need{"Faults.Cut", func(e *driverEnv) bool { return e.Harness.Faults.Cut != nil }}
	needDropReply = need{"Faults.DropReply", func(e *driverEnv) bool { return e.Harness.Faults.DropReply != nil }}
	needRestart   = need{"Faults.Restart", func(e *driverEnv) bool { return e.Harness.Faults.Restart != nil }}
	needKill      = need{"Faults.Kill", func(e *driverEnv) bool { return e.Harness.Faults.Kill != nil }}
	needLose      = need{"Faults.Lose", func(e *driverEnv) bool { return e.Harness.Faults.Lose != nil }}
	needCommands  = need{"Faults.Commands", func(e *driverEnv) bool { return e.Harness.Faults.Commands != nil }}
)

func backendVerb[T any](e *driverEnv) bool {
	_, ok := backend.As[T](e.Backend)
	return ok
}

func sourceVerb[T any](e *driverEnv) bool {
	src := e.AttachAs(backend.Config{Topic: "probe", Group: "probe"})
	_, ok := backend.As[T](src)
	e.Must(src.Close())
	return ok
}
