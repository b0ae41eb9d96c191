package contract

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// pauseLaws are about groups that an operator has paused.
var pauseLaws = []law.Law{
	{
		ID: "G10", Name: "pause", Promise: "no member of a paused group receives messages, in whatever process and whenever it attached; Receive says who paused the group, why and until when; after Resume the members get what is due",
		Needs:  []law.Need{law.NeedVerb[backend.Pauser]()},
		Faults: []string{"pause-ignored"}, Test: pauses,
	}, {
		ID: "G11", Name: "pause-until", Promise: "a pause ends by itself at its time",
		Needs:  []law.Need{law.NeedVerb[backend.Pauser]()},
		Faults: []string{"pause-ignored"}, Test: pauseUntil,
	}, {
		ID: "G12", Name: "pause-settle", Promise: "a member of a paused group can settle and extend what it holds; what it does not settle is redelivered after the pause",
		Needs:  []law.Need{law.NeedVerb[backend.Pauser](), law.NeedDelayer, law.NeedExtender},
		Faults: []string{"pause-ignored"}, Test: pauseSettle,
	}, {
		ID: "G13", Name: "pause-others", Promise: "a pause does not affect other groups of the topic",
		Needs:  []law.Need{law.NeedVerb[backend.Pauser]()},
		Faults: []string{"every-group"}, Test: pauseOthers,
	}, {
		ID: "G14", Name: "pause-reset", Promise: "a group that is reset stays paused, and a group that is deleted and recreated is not paused",
		Needs:  []law.Need{law.NeedVerb[backend.Pauser](), law.NeedVerb[backend.Admin]()},
		Faults: []string{"reset-ignored"}, Test: pauseReset,
	}, {
		ID: "G15", Name: "pause-unknown", Promise: "pausing, resuming or querying a group that does not exist returns ErrGone",
		Needs:  []law.Need{law.NeedVerb[backend.Pauser]()},
		Faults: []string{"errors-hidden"}, Test: pauseUnknown,
	}, {
		ID: "G16", Name: "pause-refused", Promise: "a pause whose texts are too long is refused and changes nothing; a pause until a past time ends the pause",
		Needs:  []law.Need{law.NeedVerb[backend.Pauser]()},
		Faults: []string{"settings-corrected"}, Test: pauseRefused,
	},
}

// paused pauses a group, and waits until no Receive of its members may deliver.
func paused(e *law.Env, group string, p backend.Pause) {
	e.Helper()
	e.Verb(e.Verbs().Pause(e.Context(), law.Topic, group, p))
	time.Sleep(time.Second)
}

// stands expects that src receives nothing, and learns of the pause p.
func stands(e *law.Env, src backend.Source, p backend.Pause) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), 11*time.Second+e.Grace)
	defer cancel()
	for {
		ds, err := src.Receive(ctx, 10, 0)
		if len(ds) > 0 {
			e.Failf("a member of a paused group got %v", law.IDs(ds))
		}
		if paused, ok := errors.AsType[*backend.PausedError](err); ok && errors.Is(err, backend.ErrPaused) {
			got := paused.Pause
			if got.By != p.By || got.Why != p.Why || !got.Until.Truncate(time.Second).Equal(p.Until.Truncate(time.Second)) || got.Since.IsZero() {
				e.Failf("Receive of a paused group: got the pause %+v, want %+v", got, p)
			}
			return
		}
		if ctx.Err() != nil {
			e.Failf("Receive of a paused group: got error %v, want a PausedError", err)
		}
		if err != nil {
			e.Must(err)
		}
	}
}

// goesOn expects that src soon receives messages.
func goesOn(e *law.Env, src backend.Source, want []string) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), 3*time.Second+e.Soon())
	defer cancel()
	var got []string
	for len(got) < len(want) && ctx.Err() == nil {
		ds, err := src.Receive(ctx, 100, 0)
		if err != nil && !errors.Is(err, backend.ErrPaused) && ctx.Err() == nil {
			e.Must(err)
		}
		got = append(got, law.IDs(ds)...)
		e.Ack(src, slices.Clone(ds)...)
		if len(ds) == 0 {
			time.Sleep(law.Pause)
		}
	}
	if !slices.Equal(got, want) {
		e.Failf("after the pause the group got %v, want %v", got, want)
	}
}

func pauses(e *law.Env) {
	src := e.Attach("g")
	p := backend.Pause{By: "ann@example.org", Why: "the bank is closed, see “INC-7”", Until: e.Now().Add(time.Hour)}
	paused(e, "g", p)
	e.PublishN(3)
	stands(e, src, p)
	if e.Claims(law.NeedPeer) {
		_, other := e.AttachPeer(backend.Config{Group: "g"})
		stands(e, other, p)
		e.Must(other.Close())
	}
	late := e.Attach("g")
	stands(e, late, p)
	e.Must(late.Close())
	got, err := e.Verbs().Paused(e.Context(), law.Topic, "g")
	e.Must(err)
	if got.By != p.By || got.Why != p.Why || got.Since.IsZero() {
		e.Failf("Paused: got %+v, want %+v", got, p)
	}
	e.Must(e.Verbs().Resume(e.Context(), law.Topic, "g"))
	goesOn(e, src, []string{"0000", "0001", "0002"})
	if got, err = e.Verbs().Paused(e.Context(), law.Topic, "g"); err != nil || got != (backend.Pause{}) {
		e.Failf("Paused after Resume: got %+v and error %v, want none", got, err)
	}
	e.Must(e.Verbs().Resume(e.Context(), law.Topic, "g"))
}

func pauseUntil(e *law.Env) {
	src := e.Attach("g")
	start := time.Now()
	p := backend.Pause{Until: e.Now().Add(4 * time.Second)}
	paused(e, "g", p)
	e.PublishN(2)
	ctx, cancel := context.WithTimeout(e.Context(), 3*time.Second+e.Soon()+4*time.Second)
	defer cancel()
	for {
		ds, err := src.Receive(ctx, 10, 0)
		if len(ds) > 0 {
			e.NotBefore(start, 3900*time.Millisecond, "a group that is paused for four seconds got a message")
			return
		}
		if ctx.Err() != nil || err != nil && !errors.Is(err, backend.ErrPaused) {
			e.Failf("Receive of a group whose pause is over: got error %v", err)
		}
		time.Sleep(law.Pause)
	}
}

func pauseSettle(e *law.Env) {
	src := e.Attach("g")
	e.PublishN(4)
	ds := e.Receive(src, 4)
	paused(e, "g", backend.Pause{})
	e.Must(e.Extend(src, ds...))
	e.Ack(src, ds[0])
	e.Must(e.Delay(src, 0, ds[1]))
	e.Ack(src, ds[2])
	stands(e, src, backend.Pause{})
	time.Sleep(e.Lease + e.Soon())
	stands(e, src, backend.Pause{})
	e.Must(e.Verbs().Resume(e.Context(), law.Topic, "g"))
	goesOn(e, src, []string{"0001", "0003"})
}

func pauseOthers(e *law.Env) {
	src, other := e.Attach("g"), e.Attach("other")
	paused(e, "g", backend.Pause{})
	want := law.IDsOf(e.PublishN(3))
	if got := law.IDs(e.Receive(other, 3)); !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
	stands(e, src, backend.Pause{})
}

func pauseReset(e *law.Env) {
	src := e.Attach("g")
	p := backend.Pause{Why: "a reset"}
	e.PublishN(3)
	paused(e, "g", p)
	e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "g", backend.StartEarliest))
	stands(e, src, p)
	e.Must(src.Close())
	e.Verb(e.Verbs().DeleteGroup(e.Context(), law.Topic, "g"))
	recreated := e.AttachAs(backend.Config{Group: "g", Start: backend.StartLatest})
	e.Publish(&backend.Message{ID: "next"})
	goesOn(e, recreated, []string{"next"})
}

func pauseUnknown(e *law.Env) {
	e.Attach("g")
	for _, of := range [][2]string{{"nowhere", "g"}, {law.Topic, "nobody"}} {
		e.Is("Pause", e.Verbs().Pause(e.Context(), of[0], of[1], backend.Pause{}), backend.ErrGone)
		e.Is("Resume", e.Verbs().Resume(e.Context(), of[0], of[1]), backend.ErrGone)
		_, err := e.Verbs().Paused(e.Context(), of[0], of[1])
		e.Is("Paused", err, backend.ErrGone)
	}
}

func pauseRefused(e *law.Env) {
	src := e.Attach("g")
	long := string(make([]byte, backend.MaxPauseText+1))
	for _, p := range []backend.Pause{{By: long}, {Why: long}} {
		e.Is("Pause with a long text", e.Verbs().Pause(e.Context(), law.Topic, "g", p), backend.ErrRefused)
	}
	e.Publish(&backend.Message{ID: "a"})
	goesOn(e, src, []string{"a"})
	paused(e, "g", backend.Pause{})
	e.Must(e.Verbs().Pause(e.Context(), law.Topic, "g", backend.Pause{Until: e.Now().Add(-time.Hour)}))
	e.Publish(&backend.Message{ID: "b"})
	goesOn(e, src, []string{"b"})
}
