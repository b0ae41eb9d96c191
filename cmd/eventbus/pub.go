package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/observer"
)

const pubHelp = `Publish events to a topic: a single one with --data, or those of an input with one
JSON object per line:

  {"id":"e-1","type":"order.placed","source":"shop","subject":"o-1","key":"c-1",
   "time":"2026-03-02T08:00:00Z","headers":{"region":"north"},"data":{"order":"o-1","cents":1290}}

Every field is optional. "data" is the payload as it is. If "content_type" is not a
JSON type, "data" is a string with the text of the payload, and "data_base64" holds a
payload that is neither. You can feed the output of sub and tail back in, except for
dead letters: use dlq export for those. "topic", "group", "attempt" and "position"
are ignored.

Events are published in batches while the input is read, in its order; at most a few
thousand events, or 8 MiB, are in memory. The first bad line ends the command: what
comes before it is published, nothing after it is, and the error gives the line and
the number of published events. Events published before an error stay. If the broker
refuses an event, later ones of its batch may be published, and the error says how many.

With --once an event is stored only if its id was not stored in this topic before, as
far back as the backend remembers (memory: 2 minutes). Every event then needs an id,
and you can repeat the command after an error.

With --at or --in the events are published later, by a process that is subscribed to
the topic or by eventbus schedule run. An event replaces a scheduled event with its id.`

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
	f.StringVar(&p.input, "input", "-", "NDJSON `file` with events, or - for standard input")
	f.StringVar(&p.data, "data", "", "`payload` of a single event")
	f.StringVar(&p.id, "id", "", "`id` of the --data event (default: a new one)")
	f.StringVar(&p.key, "key", "", "`key` for events without one")
	f.StringVar(&p.kind, "type", "", "`type` for events without one")
	f.StringVar(&p.contentType, "content-type", "", "content `type` of --data (default: JSON if it is JSON, else text)")
	f.BoolVar(&p.once, "once", false, "store each id only once")
	f.StringVar(&p.at, "at", "", "`time` at which to publish the events, such as 2026-03-02T08:00:00Z")
	f.DurationVar(&p.in, "in", 0, "`duration` after which to publish the events, such as 90m")
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
	if p.isMemory() {
		return errors.New("mem: would forget the events when this command ends; give the URL of a broker or of a file such as bolt:events.db, or try eventbus demo")
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

// print writes the result. A due time that is not zero is when the events will be published.
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

// due returns when the events are to be published; zero means now.
func (p *pub) due() (time.Time, error) {
	switch {
	case p.at != "" && p.in != 0:
		return time.Time{}, errors.New("give --at or --in, not both")
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
		s += fmt.Sprintf(", %d were already there", *d.Duplicates)
	}
	return s
}

func (p *pub) check(cmd *cobra.Command) error {
	if p.single {
		if cmd.Flags().Changed("input") {
			return errors.New("give --data or --input, not both")
		}
		if p.once && p.id == "" {
			return errNeedsID
		}
		return nil
	}
	for _, flag := range []string{"id", "content-type"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s goes with --data; lines of an input have a field for it", flag)
		}
	}
	return filled(cmd, "input")
}

var errNeedsID = errors.New("the event has no id, which --once needs to recognize it")

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

// openInput opens the input and returns its name for messages.
func openInput(stdin io.Reader, input string) (name string, from io.ReadCloser, err error) {
	if input == "-" {
		return "standard input", io.NopCloser(stdin), nil
	}
	f, err := os.Open(input)
	return input, f, err
}
