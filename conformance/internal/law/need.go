package law

import (
	"reflect"

	"github.com/seed41896749/eventbus/backend"
)

// A Need is a verb, a limit or a field of the suite. If it is missing, the laws that need it
// are not claimed.
type Need struct {
	what    string
	claimed func(*Env) bool
}

// The Needs. The name of each Need, for the report, is the verb, the limit or the field of
// Suite.
var (
	NeedDelayer  = Need{"Delayer", sourceVerb[backend.Delayer]}
	NeedExtender = Need{"Extender", sourceVerb[backend.Extender]}

	NeedRest = Need{"Delayer or Extender", func(e *Env) bool {
		return sourceVerb[backend.Delayer](e) || sourceVerb[backend.Extender](e)
	}}

	NeedOnce   = Need{"Limits.OnceWindow", func(e *Env) bool { return e.Limits.OnceWindow > 0 }}
	NeedRefund = Need{"Limits.Refund", func(e *Env) bool { return e.Limits.Refund }}
	NeedFence  = Need{"Limits.FencedAcks", func(e *Env) bool { return e.Limits.FencedAcks }}

	NeedKeep        = Need{"Limits.Settings.Keep", func(e *Env) bool { return e.Limits.Settings.Keep }}
	NeedMaxMessages = Need{"Limits.Settings.MaxMessages", func(e *Env) bool { return e.Limits.Settings.MaxMessages }}
	NeedMaxBytes    = Need{"Limits.Settings.MaxBytes", func(e *Env) bool { return e.Limits.Settings.MaxBytes }}
	NeedEphemeral   = Need{"Limits.Ephemeral", func(e *Env) bool { return e.Limits.Ephemeral }}

	NeedInstances = Need{"Limits.Instances", func(e *Env) bool { return e.Limits.Instances }}

	// A test waits for the end of the window, exceeds the payload, and uses long delays.
	// These three Needs are met only if the limit allows that.
	NeedShortWindow = Need{"Limits.OnceWindow of at most 5 leases", func(e *Env) bool {
		return e.Limits.OnceWindow > 0 && e.Limits.OnceWindow <= 5*e.Lease
	}}
	NeedPayloadLimit = Need{"Limits.Payload of at most 16 MiB", func(e *Env) bool {
		return e.Limits.Payload > 0 && e.Limits.Payload <= 16<<20
	}}
	NeedLongDelay = Need{"Limits.Delay of 20 leases", func(e *Env) bool {
		return e.Limits.Delay == 0 || e.Limits.Delay >= 20*e.Lease
	}}
	NeedBound = Need{"Suite.NewBounded", func(e *Env) bool { return e.Harness.NewBounded != nil }}
	NeedPeer  = Need{"Suite.Peer", func(e *Env) bool { return e.Harness.Peer != nil }}

	NeedDown      = Need{"Faults.Down", func(e *Env) bool { return e.Harness.Faults.Down != nil }}
	NeedFreeze    = Need{"Faults.Freeze", func(e *Env) bool { return e.Harness.Faults.Freeze != nil }}
	NeedSwallow   = Need{"Faults.Swallow", func(e *Env) bool { return e.Harness.Faults.Swallow != nil }}
	NeedCut       = Need{"Faults.Cut", func(e *Env) bool { return e.Harness.Faults.Cut != nil }}
	NeedDropReply = Need{"Faults.DropReply", func(e *Env) bool { return e.Harness.Faults.DropReply != nil }}
	NeedRestart   = Need{"Faults.Restart", func(e *Env) bool { return e.Harness.Faults.Restart != nil }}
	NeedKill      = Need{"Faults.Kill", func(e *Env) bool { return e.Harness.Faults.Kill != nil }}
	NeedLose      = Need{"Faults.Lose", func(e *Env) bool { return e.Harness.Faults.Lose != nil }}
	NeedCommands  = Need{"Faults.Commands", func(e *Env) bool { return e.Harness.Faults.Commands != nil }}
)

// NeedVerb returns the Need of the optional verb T of a [backend.Backend].
func NeedVerb[T any]() Need {
	return Need{reflect.TypeFor[T]().Name(), func(e *Env) bool {
		_, ok := backend.As[T](e.Backend)
		return ok
	}}
}

func sourceVerb[T any](e *Env) bool {
	src := e.AttachAs(backend.Config{Topic: "probe", Group: "probe"})
	_, ok := backend.As[T](src)
	e.Must(src.Close())
	return ok
}
