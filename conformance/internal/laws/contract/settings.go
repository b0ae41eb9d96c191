package contract

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// keepLaws are about the settings of a topic.
var keepLaws = []law.Law{
	{
		ID: "C89", Name: "keep", Promise: "with Keep, a message that every group has settled stays: new groups, reset groups, groups that start after a position, and readers get it, in order",
		Needs:  []law.Need{law.NeedKeep, law.NeedVerb[backend.Reader](), law.NeedVerb[backend.Admin]()},
		Faults: []string{"settings-ignored", "start-latest"}, Test: keep,
	}, {
		ID: "C90", Name: "settings-shared", Promise: "the settings of a topic are those declared first, for every process; Declare returns them, changes them only with Replace, and they end with the topic",
		Needs:  []law.Need{law.NeedKeep, law.NeedVerb[backend.Admin]()},
		Faults: []string{"settings-ignored"}, Test: settingsShared,
	}, {
		ID: "C91", Name: "keep-unsettled", Promise: "a message that a group has not settled stays longer than Keep",
		Needs:  []law.Need{law.NeedKeep, law.NeedVerb[backend.Maintainer]()},
		Faults: []string{"maintain-trims-unread"}, Test: keepUnsettled,
	}, {
		ID: "C92", Name: "max-messages", Promise: "Publish to a topic with MaxMessages first removes settled messages, oldest first, then refuses with ErrFull; it never removes a message that a group has not settled",
		Needs:  []law.Need{law.NeedMaxMessages, law.NeedVerb[backend.Reader]()},
		Faults: []string{"settings-ignored"}, Test: maxMessages,
	}, {
		ID: "C93", Name: "max-bytes", Promise: "Publish to a topic with MaxBytes first removes settled messages, oldest first, then refuses with ErrFull; it never removes a message that a group has not settled",
		Needs:  []law.Need{law.NeedMaxBytes, law.NeedVerb[backend.Reader]()},
		Faults: []string{"settings-ignored"}, Test: maxBytes,
	}, {
		ID: "C94", Name: "settings-refused", Promise: "Declare refuses a negative setting with ErrRefused and a setting that the backend does not support with ErrUnsupported, and changes nothing",
		Needs:  []law.Need{law.NeedVerb[backend.Declarer](), law.NeedVerb[backend.Admin]()},
		Faults: []string{"settings-corrected"}, Test: settingsRefused,
	},
}

// declares declares the topic with settings, and expects the settings has.
func declares(e *law.Env, b backend.Backend, d backend.Declaration, has backend.TopicSettings) {
	e.Helper()
	got, err := e.VerbsOf(b).Declare(e.Context(), law.Topic, d)
	e.Must(err)
	if got != has {
		e.Failf("Declare(%+v): got the settings %+v, want %+v", d, got, has)
	}
}

// settle publishes n messages to the topic, which a group with all of them settles.
func settle(e *law.Env, src backend.Source, prefix string, n int) []*backend.Message {
	e.Helper()
	ms := e.Publish(law.Numbered(prefix, n)...)
	e.Ack(src, e.Receive(src, n)...)
	e.Maintain("settles")
	return ms
}

func keep(e *law.Env) {
	settings := backend.TopicSettings{Keep: time.Hour}
	declares(e, e.Backend, backend.Declaration{Settings: settings}, settings)
	src := e.Attach("settles")
	ms := settle(e, src, "", 10)
	want := law.IDsOf(ms)
	expect := func(what string, src backend.Source, want []string) {
		e.Helper()
		ds := e.ReceiveWithin(src, len(want), e.Patience()/2)
		if got := law.IDs(ds); !slices.Equal(got, want) {
			e.Failf("%s got %v, want %v", what, got, want)
		}
		e.Ack(src, ds...)
	}
	expect("a new group", e.Attach("new"), want)
	expect("a group that starts after a message", e.AttachAs(backend.Config{Group: "after", Start: backend.StartAfter(ms[3].Position)}), want[4:])
	e.Verb(e.Verbs().ResetGroup(e.Context(), law.Topic, "settles", backend.StartEarliest))
	expect("a group that was reset", src, want)
	reads(e, "", 100, ms)
}

func settingsShared(e *law.Env) {
	hour, day := backend.TopicSettings{Keep: time.Hour}, backend.TopicSettings{Keep: 24 * time.Hour}
	other := e.Backend
	if e.Claims(law.NeedPeer) {
		other = e.Peer()
	}
	declares(e, e.Backend, backend.Declaration{}, backend.TopicSettings{})
	declares(e, e.Backend, backend.Declaration{Settings: hour}, hour)
	declares(e, other, backend.Declaration{Settings: day}, hour)
	declares(e, other, backend.Declaration{}, hour)
	declares(e, other, backend.Declaration{Settings: day, Replace: true}, day)
	declares(e, e.Backend, backend.Declaration{Settings: hour}, day)
	e.Verb(e.Verbs().DeleteTopic(e.Context(), law.Topic))
	declares(e, e.Backend, backend.Declaration{}, backend.TopicSettings{})
	declares(e, other, backend.Declaration{Settings: day}, day)
	declares(e, e.Backend, backend.Declaration{Replace: true}, backend.TopicSettings{})
	declares(e, other, backend.Declaration{}, backend.TopicSettings{})
}

func keepUnsettled(e *law.Env) {
	settings := backend.TopicSettings{Keep: time.Second}
	declares(e, e.Backend, backend.Declaration{Settings: settings}, settings)
	slow := e.Attach("slow")
	ms := settle(e, e.Attach("settles"), "", 10)
	time.Sleep(3 * time.Second)
	e.Maintain("settles")
	e.Maintain("slow")
	if got, want := law.IDs(e.Receive(slow, 10)), law.IDsOf(ms); !slices.Equal(got, want) {
		e.Failf("got %v, want what the group has not settled: %v", got, want)
	}
}

// bounded tests a topic that has room for ten messages of a size, by these settings. The
// last four of ten messages are unsettled, so that six more fit.
func bounded(e *law.Env, settings backend.TopicSettings, size int) {
	declares(e, e.Backend, backend.Declaration{Settings: settings}, settings)
	src := e.Attach("settles")
	sized := func(prefix string, n int) []*backend.Message {
		ms := law.Numbered(prefix, n)
		for _, m := range ms {
			m.Payload = make([]byte, size-len(m.ID))
		}
		return ms
	}
	ms := e.Publish(sized("a-", 10)...)
	e.Ack(src, e.Receive(src, 6)...)
	kept := e.Publish(sized("b-", 4)...)
	if err := e.Send(sized("c-", 5)...); err == nil {
		e.Failf("Publish beyond the bound: got no error")
	} else {
		for i := range 5 {
			one := backend.ErrorAt(err, i)
			if i < 2 && one != nil || i >= 2 && !errors.Is(one, backend.ErrFull) {
				e.Failf("message %d of 5, of which two fit: got error %v", i, one)
			}
		}
	}
	want := slices.Concat(law.IDsOf(ms[6:]), law.IDsOf(kept), []string{"c-0000", "c-0001"})
	all, err := e.Verbs().Read(e.Context(), law.Topic, backend.StartEarliest, 100)
	e.Verb(err)
	var got []string
	for i := range all {
		got = append(got, all[i].ID)
	}
	if !slices.Equal(got, want) {
		e.Failf("the topic has %v, want %v", got, want)
	}
	ds := e.Receive(src, 10)
	if got := law.IDs(ds); !slices.Equal(got, want) {
		e.Failf("the group got %v, want %v", got, want)
	}
	e.Ack(src, ds...)
	e.Publish(sized("d-", 10)...)
	if got := len(e.Receive(src, 10)); got != 10 {
		e.Failf("after all were settled, the group got %d new messages, want 10", got)
	}
}

func maxMessages(e *law.Env) {
	settings := backend.TopicSettings{MaxMessages: 10}
	if e.Limits.Settings.Keep {
		settings.Keep = time.Hour
	}
	bounded(e, settings, 100)
}

// maxBytes uses large messages, because a broker may count its own bytes too.
func maxBytes(e *law.Env) {
	const size = 20_000
	settings := backend.TopicSettings{MaxBytes: 10*size + size/2}
	if e.Limits.Settings.Keep {
		settings.Keep = time.Hour
	}
	bounded(e, settings, size)
}

func settingsRefused(e *law.Env) {
	v := e.Verbs()
	_, err := v.Declare(e.Context(), law.Topic, backend.Declaration{})
	e.Verb(err)
	for _, bad := range []backend.TopicSettings{{Keep: -1}, {MaxMessages: -1}, {MaxBytes: -1}} {
		_, err := v.Declare(e.Context(), law.Topic, backend.Declaration{Settings: bad, Replace: true})
		e.Is(fmt.Sprintf("Declare of %+v", bad), err, backend.ErrRefused)
	}
	s := e.Limits.Settings
	for _, row := range []struct {
		supported bool
		settings  backend.TopicSettings
	}{
		{s.Keep, backend.TopicSettings{Keep: time.Hour}},
		{s.MaxMessages, backend.TopicSettings{MaxMessages: 1}},
		{s.MaxBytes, backend.TopicSettings{MaxBytes: 1 << 20}},
	} {
		if !row.supported {
			_, err := v.Declare(e.Context(), law.Topic, backend.Declaration{Settings: row.settings, Replace: true})
			e.Is(fmt.Sprintf("Declare of %+v", row.settings), err, errors.ErrUnsupported)
		}
	}
	declares(e, e.Backend, backend.Declaration{}, backend.TopicSettings{})
}

var declareLaws = []law.Law{{
	ID: "C63", Name: "declare", Promise: "a topic can be declared before its first message, and declaring it again at any time changes nothing",
	Needs:  []law.Need{law.NeedVerb[backend.Declarer]()},
	Faults: []string{"settle-once", "closed-answers"}, Test: declare,
}}

func declare(e *law.Env) {
	e.Verb(declared(e))
	e.Must(declared(e))
	src := e.Attach("g")
	want := law.IDsOf(e.PublishN(4))
	ds := e.Receive(src, 2)
	e.Must(declared(e))
	ds = append(ds, e.Receive(src, 2)...)
	if got := law.IDs(ds); !slices.Equal(got, want) {
		e.Failf("got %v, want what the topic had when it was declared again: %v", got, want)
	}
	e.Ack(src, ds...)
	late := e.Attach("late")
	e.Must(declared(e))
	e.Publish(&backend.Message{ID: "next"})
	if d := e.One(src); d.ID != "next" {
		e.Failf("got %q, want what was published after the topic was declared again", d.ID)
	}
	e.One(late)
	e.Must(e.Backend.Close())
	e.Is("Declare after Close", declared(e), backend.ErrClosed)
}

// declared declares the topic without settings.
func declared(e *law.Env) error {
	_, err := e.Verbs().Declare(e.Context(), law.Topic, backend.Declaration{})
	return err
}
