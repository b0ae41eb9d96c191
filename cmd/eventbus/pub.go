package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/observer"
	"github.com/spf13/cobra"
)

const pubHelp = `Publish events to a topic: one with --data, or else those of an input, which has
one JSON object a line:

  {"id":"e-1","type":"order.placed","source":"shop","subject":"o-1","key":"c-1",
   "time":"2026-03-02T08:00:00Z","headers":{"region":"north"},"data":{"order":"o-1","cents":1290}}

All fields may be missing. "data" is the payload as it is. With a "content_type"
that is not of JSON it is a string whose text is the payload; a payload that is
neither is in "data_base64". What sub and tail print can be read, except dead letters:
see dlq export. "topic", "group", "attempt" and "position" mean nothing here.

Events are published while the input is read, in its order, in batches; some
thousand events, or 8 MiB, are kept. The first line that is wrong ends it: what
comes before is published, nothing that comes after, and the error says where and
how many. Events that were published before an error stay. If the broker refuses an
event, later ones of its batch may be published; the error then says how many.

With --once an event is stored only if its id was not stored in this topic before,
as far back as the backend remembers (memory: 2 minutes). So each event needs an id
of its own then, and the same command can be repeated after an error.

With --at or --in the events are published later, by a process that is subscribed to
the topic, or by eventbus schedule run. An event replaces the scheduled event of its id.`

// A pub is the command "eventbus pub", with its flags.
type pub struct {
	connection

	input, data, id, key, kind, contentType string
	at                                      string
	in                                      time.Duration
	once, single                            bool
}

func newPub(drivers []backend.Driver, asJSON *bool) *cobra.Command {
	p := &pub{connection: connection{drivers: drivers}}
	cmd := &cobra.Command{
		Use:     "pub TOPIC",
		Short:   "Publish one event, or a stream of them",
		Long:    pubHelp,
		Example: "  eventbus pub orders --data '{\"order\":\"o-1\"}' --key c-1 --type order.placed\n  eventbus pub orders --once <events.ndjson",
		Args:    topicArgs(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.single = cmd.Flags().Changed("data")
			if err := p.run(cmd, args[0], *asJSON); err != nil {
				return fmt.Errorf("pub: %w", err)
			}
			return nil
		},
	}
	p.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&p.input, "input", "-", "NDJSON `file` with events, - for standard input")
	f.StringVar(&p.data, "data", "", "`payload` of the only event")
	f.StringVar(&p.id, "id", "", "`id` of the event of --data (default: a new one)")
	f.StringVar(&p.key, "key", "", "`key` of events that have none")
	f.StringVar(&p.kind, "type", "", "`type` of events that have none")
	f.StringVar(&p.contentType, "content-type", "", "content `type` of --data (default: JSON if it is JSON, else text)")
	f.BoolVar(&p.once, "once", false, "store each id only once")
	f.StringVar(&p.at, "at", "", "`time` at which the events are published, as in 2026-03-02T08:00:00Z")
	f.DurationVar(&p.in, "in", 0, "`duration` after which the events are published, such as 90m")
	return cmd
}

// A published is the result of pub.
type published struct {
	Topic      string `json:"topic"`
	Stored     int64  `json:"stored"`               // new events
	Duplicates *int64 `json:"duplicates,omitempty"` // events stored before; with --once
	Position   string `json:"position,omitempty"`   // of the last event
	At         string `json:"at,omitempty"`         // with --at or --in: when the events are published
}

func (p *pub) run(cmd *cobra.Command, topic string, asJSON bool) error {
	if err := p.check(cmd); err != nil {
		return err
	}
	if p.forgets() {
		return errors.New("mem: would forget the events when this command ends; give the URL of a broker, or of a file such as bolt:events.db, or try eventbus demo")
	}
	due, err := p.due()
	if err != nil {
		return err
	}
	var stored, duplicates atomic.Int64
	watch := logProblems(cmd.ErrOrStderr())
	watch.Published = func(e observer.Published) {
		stored.Add(int64(e.Stored - e.Duplicates))
		duplicates.Add(int64(e.Duplicates))
	}
	name, from, err := openInput(cmd.InOrStdin(), p.input)
	if err != nil {
		return err
	}
	defer from.Close()
	bus, err := p.open(cmd.Context(), eventbus.Options{Service: "eventbus", Observer: watch, Dedup: p.once})
	if err != nil {
		return err
	}
	defer p.close(cmd.Context(), bus)

	last := ""
	publisher := eventbus.PublisherFunc(func(ctx context.Context, topic string, events ...*eventbus.Event) error {
		if !due.IsZero() {
			return bus.PublishAt(ctx, topic, due, events...)
		}
		receipts, err := bus.PublishReceipts(ctx, topic, events...)
		if err == nil {
			last = receipts[len(receipts)-1].Position
		}
		return err
	})
	if p.single {
		err = publisher(cmd.Context(), topic, p.event())
	} else {
		f := &ndjson.Publisher{Bus: publisher, Topic: topic, Input: ndjson.NewReader(name, from), Prepare: p.prepare}
		_, err = f.Run(cmd.Context())
	}
	if err != nil {
		return err
	}
	did := published{Topic: topic, Stored: stored.Load(), Position: last}
	if p.once {
		n := duplicates.Load()
		did.Duplicates = &n
	}
	return did.print(cmd.OutOrStdout(), due, asJSON)
}

// print writes the result. due is the time at which the events are published; zero: now.
func (d published) print(to io.Writer, due time.Time, asJSON bool) error {
	if !due.IsZero() {
		d.At = due.Format(time.RFC3339)
	}
	if asJSON {
		return writeJSON(to, d)
	}
	_, err := fmt.Fprintln(to, d)
	return err
}

// due returns the time at which the events are published; zero: now.
func (p *pub) due() (time.Time, error) {
	switch {
	case p.at != "" && p.in != 0:
		return time.Time{}, errors.New("--at and --in exclude each other")
	case p.in < 0:
		return time.Time{}, errors.New("--in is negative")
	case p.in > 0:
		return time.Now().Add(p.in), nil
	case p.at == "":
		return time.Time{}, nil
	}
	due, err := time.Parse(time.RFC3339, p.at)
	if err != nil {
		return due, fmt.Errorf("--at is %q, want a time such as %s", p.at, time.Now().UTC().Format(time.RFC3339))
	}
	return due, nil
}

// String returns the result as a line of text.
func (d published) String() string {
	s := fmt.Sprintf("stored %s in %s", plural.Of(d.Stored, "event"), d.Topic)
	if d.At != "" {
		s = fmt.Sprintf("scheduled %s of %s for %s", plural.Of(d.Stored, "event"), d.Topic, d.At)
	}
	if d.Duplicates != nil {
		s += fmt.Sprintf(", %d were there before", *d.Duplicates)
	}
	return s
}

func (p *pub) check(cmd *cobra.Command) error {
	if p.single {
		if cmd.Flags().Changed("input") {
			return errors.New("--data and --input exclude each other")
		}
		if p.once && p.id == "" {
			return errNeedsID
		}
		return nil
	}
	for _, flag := range []string{"id", "content-type"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s is for --data; lines have a field for it", flag)
		}
	}
	return filled(cmd, "input")
}

var errNeedsID = errors.New("the event has no id, by which --once would know it again")

// event returns the event of --data and the other flags.
func (p *pub) event() *eventbus.Event {
	e := &eventbus.Event{ID: p.id, Key: p.key, Type: p.kind, ContentType: p.contentType, Payload: []byte(p.data)}
	if e.ContentType == "" {
		e.ContentType = ndjson.ContentTypeOf(e.Payload)
	}
	return e
}

// prepare fills in fields of an input event from the flags.
func (p *pub) prepare(e *eventbus.Event) error {
	if e.Key == "" {
		e.Key = p.key
	}
	if e.Type == "" {
		e.Type = p.kind
	}
	if p.once && e.ID == "" {
		return errNeedsID
	}
	return nil
}

// openInput opens the input, and returns the name by which messages call it.
func openInput(stdin io.Reader, input string) (name string, from io.ReadCloser, err error) {
	if input == "-" {
		return "standard input", io.NopCloser(stdin), nil
	}
	f, err := os.Open(input)
	return input, f, err
}
