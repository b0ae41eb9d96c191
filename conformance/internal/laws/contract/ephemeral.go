package contract

import (
	"errors"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// ephemeralLaws are about groups that live with their members.
var ephemeralLaws = []law.Law{
	{
		ID: "G01", Name: "ephemeral", Promise: "an ephemeral group receives and settles like any other, and is deleted with its unsettled messages when its last member closes",
		Needs:  []law.Need{law.NeedEphemeral, law.NeedVerb[backend.Admin]()},
		Faults: []string{"ephemeral-ignored"}, Test: ephemeral,
	}, {
		ID: "G02", Name: "ephemeral-shared", Promise: "an ephemeral group keeps its unsettled messages while one of its members is open",
		Needs:  []law.Need{law.NeedEphemeral, law.NeedVerb[backend.Admin]()},
		Faults: []string{"ephemeral-ends-with-one"}, Test: ephemeralShared,
	}, {
		ID: "G03", Name: "ephemeral-dead", Promise: "an ephemeral group whose process has died is deleted about ten leases later, even if the other processes maintain only other topics",
		Needs:  []law.Need{law.NeedEphemeral, law.NeedPeer, law.NeedFreeze, law.NeedVerb[backend.Admin](), law.NeedVerb[backend.Maintainer]()},
		Faults: []string{"ephemeral-ignored"}, Test: ephemeralDead,
	}, {
		ID: "G04", Name: "ephemeral-idle", Promise: "an ephemeral group whose member receives nothing for more than ten leases stays if Maintain is called for it as often as Maintain asks",
		Needs:  []law.Need{law.NeedEphemeral, law.NeedVerb[backend.Admin](), law.NeedVerb[backend.Maintainer]()},
		Faults: []string{"ephemeral-ends-with-one"}, Test: ephemeralIdle,
	}, {
		ID: "G05", Name: "ephemeral-kind", Promise: "Attach refuses an ephemeral member in a lasting group, and a lasting member in an ephemeral group",
		Needs:  []law.Need{law.NeedEphemeral},
		Faults: []string{"ephemeral-ignored"}, Test: ephemeralKind,
	}, {
		ID: "G06", Name: "ephemeral-releases", Promise: "messages that only an ephemeral group had not settled count as settled for the topic once the group is gone",
		Needs:  []law.Need{law.NeedEphemeral, law.NeedMaxMessages},
		Faults: []string{"ephemeral-ignored"}, Test: ephemeralReleases,
	},
}

func ephemeral(e *law.Env) {
	keeps := e.Attach("keeps")
	e.PublishN(3)
	src := e.AttachAs(backend.Config{Group: "one", Ephemeral: true})
	ds := e.Receive(src, 3)
	e.Ack(src, ds[0])
	e.AwaitGroup("one", true, "its member is open")
	e.Must(src.Close())
	e.AwaitGroup("one", false, "its only member has closed")
	again := e.AttachAs(backend.Config{Group: "one", Ephemeral: true, Start: backend.StartLatest})
	e.Publish(&backend.Message{ID: "next"})
	if d := e.One(again); d.ID != "next" {
		e.Failf("a group that was recreated got %q, want what was published then", d.ID)
	}
	if got := len(e.Receive(keeps, 4)); got != 4 {
		e.Failf("the other group got %d messages, want 4", got)
	}
}

func ephemeralShared(e *law.Env) {
	one := e.AttachAs(backend.Config{Group: "few", Ephemeral: true})
	two := e.AttachAs(backend.Config{Group: "few", Ephemeral: true})
	want := law.IDsOf(e.PublishN(3))
	e.Must(one.Close())
	e.AwaitGroup("few", true, "a member is open")
	if got := law.IDs(e.Receive(two, 3)); !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
	e.Must(two.Close())
	e.AwaitGroup("few", false, "the last member has closed")
}

// shortLease is a lease short enough to wait for ten of them.
func shortLease(e *law.Env) time.Duration { return max(e.Lease/4, 200*time.Millisecond) }

func ephemeralDead(e *law.Env) {
	lease := shortLease(e)
	e.Attach("keeps")
	e.AttachAs(backend.Config{Topic: "other", Group: "works"})
	peer, src := e.AttachPeer(backend.Config{Group: "dies", Ephemeral: true, Lease: lease})
	e.PublishN(3)
	e.Receive(src, 1)
	e.AwaitGroup("dies", true, "its member lives")
	e.Freeze(peer)
	died := time.Now()
	for {
		next := 100 * time.Millisecond
		_, err := e.Verbs().Maintain(e.Context(), "other", "works")
		if err != nil && !law.Passing(err) {
			e.Must(err)
		}
		groups, err := e.Verbs().Groups(e.Context(), law.Topic)
		if err == nil && !slices.Contains(groups, "dies") {
			break
		}
		if time.Since(died) > 10*lease+15*time.Second+e.Patience()/4 {
			e.Failf("%v after the death of its member, the topic has the groups %v", time.Since(died), groups)
		}
		time.Sleep(next)
	}
	e.NotBefore(died, 9*lease, "the group was deleted")
}

func ephemeralIdle(e *law.Env) {
	lease := shortLease(e)
	src := e.AttachAs(backend.Config{Group: "idles", Ephemeral: true, Lease: lease})
	want := law.IDsOf(e.PublishN(3))
	for start := time.Now(); time.Since(start) < 14*lease; {
		next, err := e.Verbs().Maintain(e.Context(), law.Topic, "idles")
		e.Verb(err)
		time.Sleep(max(next, 100*time.Millisecond))
	}
	e.AwaitGroup("idles", true, "its member is open")
	if got := law.IDs(e.Receive(src, 3)); !slices.Equal(got, want) {
		e.Failf("got %v, want %v", got, want)
	}
}

func ephemeralKind(e *law.Env) {
	e.Attach("lasts")
	e.AttachAs(backend.Config{Group: "ends", Ephemeral: true})
	for group, ephemeral := range map[string]bool{"lasts": true, "ends": false} {
		src, err := e.Backend.Attach(e.Context(), e.Config(backend.Config{Group: group, Ephemeral: ephemeral}))
		if err == nil {
			e.Must(errors.Join(src.Close()))
		}
		e.Is("Attach of the other kind", err, backend.ErrRefused)
	}
}

func ephemeralReleases(e *law.Env) {
	settings := backend.TopicSettings{MaxMessages: 10}
	declares(e, e.Backend, backend.Declaration{Settings: settings}, settings)
	keeps := e.Attach("keeps")
	src := e.AttachAs(backend.Config{Group: "ends", Ephemeral: true})
	e.PublishN(10)
	e.Ack(keeps, e.Receive(keeps, 10)...)
	e.Is("Publish to a topic whose messages a group has not settled", backend.ErrorAt(e.Send(&backend.Message{ID: "one too many"}), 0), backend.ErrFull)
	e.Must(src.Close())
	e.Publish(law.Numbered("more-", 5)...)
	e.Receive(keeps, 5)
}
