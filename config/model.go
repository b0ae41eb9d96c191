package config

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus"
)

// A model holds the keys of a file. Its tags are the only description of the keys: the
// decoder, the schema and the documentation read them.
//
//	key      the name in the file
//	doc      its meaning, a sentence
//	default  its value if the key is left out, as it would be written
//	option   the fields of package eventbus that it sets, separated by commas
//	min      the least value
//	none     the word that the file may have in place of a value; it means no bound
//	example  a possible value, as it would be written, if there is no default
//	required "true" if the key must be given
//	or       the key that is given in place of this one
//	each     for a mapping with names as keys: the meaning of one entry, a sentence
//	rest     "true" for the mapping that gets the keys below that the model does not know
type model struct {
	Bus bus `key:"bus" required:"true" doc:"The bus."`
}

type bus struct {
	URL             secret                  `key:"url" required:"true" example:"redis://redis:6379" doc:"The backend. The scheme chooses the driver."`
	Service         text                    `key:"service" option:"Options.Service" example:"shop" doc:"The name of the program, used as the Source of events without one. Default: the name of the executable."`
	Instance        name                    `key:"instance" option:"Options.Instance" example:"${HOSTNAME}" doc:"A stable name for this process, such as the pod name in a StatefulSet, which no other process may have at the same time. After a crash, the restarted process immediately gets the events that it held, in order. Refused by backends that cannot do that, such as NATS."`
	Timeout         duration                `key:"timeout" default:"1m" min:"1ms" none:"none" option:"Options.Timeout" doc:"Limits each run of a handler, in subscriptions without a timeout of their own."`
	OpenTimeout     duration                `key:"open_timeout" default:"none" min:"1ms" none:"none" option:"Options.OpenTimeout" doc:"How long Open waits for a broker that does not answer yet."`
	PublishTimeout  duration                `key:"publish_timeout" default:"30s" min:"1ms" none:"none" option:"Options.PublishTimeout" doc:"Bounds each Publish, retries included."`
	DrainTimeout    duration                `key:"drain_timeout" default:"25s" min:"1ms" none:"none" option:"Options.DrainTimeout" doc:"Bounds the shutdown at the end of Run."`
	Dedup           flag                    `key:"dedup" default:"false" option:"Options.Dedup" doc:"Stores an event only once while the backend remembers its ID, so that a repeated Publish is safe. Refused if the backend does not remember IDs."`
	MaxPayload      size                    `key:"max_payload" default:"960KiB" min:"1B" option:"Options.MaxPayload" doc:"The most bytes of a payload that Publish accepts. Refused if the backend takes less."`
	MaxPending      number                  `key:"max_pending" default:"10000" min:"1" option:"Options.MaxPending" doc:"How many events may wait to be published."`
	MaxPendingBytes size                    `key:"max_pending_bytes" default:"64MiB" min:"1B" option:"Options.MaxPendingBytes" doc:"The most bytes of events that may wait to be published."`
	WhenFull        enum[eventbus.WhenFull] `key:"when_full" default:"wait" option:"Options.WhenFull" doc:"What Publish does when a limit is reached: wait, return ErrBackpressure, drop its own events, or drop the events that have waited longest. A call whose events are dropped returns ErrDropped."`
	Topics          map[string]topic        `key:"topics" option:"Options.Topics" doc:"Settings of individual topics: the keys below and those of the driver, which refuses unknown ones." each:"Settings of the topic of this name."`
	Defaults        defaults                `key:"defaults" doc:"Keys that each subscription inherits which does not have them: all keys of a subscription but topic, topics and group."`
	Subscriptions   map[string]subscription `key:"subscriptions" doc:"How the program consumes, by the name that it passes to Subscribe." each:"How to consume one topic."`
	Schedules       map[string]schedule     `key:"schedules" doc:"Recurring events, by the ID of the entry. Open stores the entries in the broker. An entry that you remove from the file continues until eventbus schedule rm removes it." each:"The recurring entry of this ID."`
}

type topic struct {
	Keep        duration           `key:"keep" min:"1ms" example:"24h" doc:"How long an event stays after it was published, even if every group has settled it. New groups, and groups that are reset, get it. Default: it may go as soon as every group has settled it."`
	MaxMessages number             `key:"max_messages" min:"1" example:"1000000" doc:"The maximum number of events in the topic. To make room, settled events are removed first; after that Publish fails. Default: the limit of the backend."`
	MaxBytes    size               `key:"max_bytes" min:"1B" example:"10GiB" doc:"The most bytes of the events of the topic, as max_messages."`
	Groups      []name             `key:"groups" example:"billing, audit" doc:"Groups to create before their first members subscribe, so that the topic keeps the events for them. A new group starts with the oldest event."`
	Partitions  number             `key:"partitions" min:"1" example:"16" doc:"The number of partitions, up to 1024, into which the topic is divided so that events of a key are handled in order across the whole group. Every program must use the same number. Default: no partitions."`
	Driver      map[string]setting `rest:"true" doc:"A setting of the driver."`
}

type subscription struct {
	Topic               topicName                `key:"topic" required:"true" or:"topics" example:"shop.orders" doc:"The topic to consume, or a pattern such as shop.* (one part) or shop.> (one or more parts). Matching topics that appear later are consumed too."`
	Topics              []topicName              `key:"topics" option:"SubscribeOptions.Topics" example:"shop.orders, shop.refunds.*" doc:"A list of topics and patterns to consume together, within the same limits, in place of topic."`
	Group               groupName                `key:"group" required:"true" option:"SubscribeOptions.Group" example:"billing" doc:"Members of a group share the events of the topic, and each group gets all of them. With (each), every instance of the program has its own group, and therefore gets all events."`
	Ack                 enum[eventbus.AckMode]   `key:"ack" default:"on-success" option:"SubscribeOptions.Ack" doc:"When an event is acknowledged: after the handler has succeeded (at least once), or before it runs (at most once; a failed event is discarded; see dead_letter_on_receive)."`
	Order               enum[eventbus.Order]     `key:"order" default:"by-key" option:"SubscribeOptions.Order" doc:"Which events wait for each other within one member: events of one key, none, or all."`
	Start               start                    `key:"start" default:"earliest" option:"SubscribeOptions.Start" doc:"Where a new group starts: at the oldest event kept, the next one, or the first one stored at a time. An existing group continues at its position. With the group (each), the default is latest."`
	Concurrency         numberRange              `key:"concurrency" default:"1" min:"1" option:"SubscribeOptions.Concurrency,SubscribeOptions.MaxConcurrency" doc:"How many handlers run at once. With two numbers, such as 1..8, the program may change the number between them, and begins with the first."`
	MaxInFlight         number                   `key:"max_in_flight" default:"1024" min:"1" option:"SubscribeOptions.MaxInFlight" doc:"How many events the member may hold, whether running, waiting to run or waiting to be settled. Must be at least concurrency, which is the default if it is larger."`
	MaxBytes            size                     `key:"max_bytes" default:"64MiB" min:"1B" none:"none" option:"SubscribeOptions.MaxBytes" doc:"The maximum size of all held events together; a single event may exceed it."`
	Lease               duration                 `key:"lease" default:"30s" min:"100ms" option:"SubscribeOptions.Lease" doc:"How long the backend waits for a silent member before others get its events."`
	Timeout             duration                 `key:"timeout" min:"1ms" none:"none" option:"SubscribeOptions.Timeout" example:"10s" doc:"Limits each run of the handler. Default: the timeout of the bus."`
	LeaveTimeouts       flag                     `key:"leave_timeouts" default:"false" option:"SubscribeOptions.LeaveTimeouts" doc:"Leaves an event whose run timed out to its lease; otherwise the timeout is a failure."`
	MaxReceive          size                     `key:"max_receive" default:"10MiB" min:"1B" none:"none" option:"SubscribeOptions.MaxReceive" doc:"The size of the largest event to handle. Larger events go to the dead-letter topic."`
	DeadLetterExpired   flag                     `key:"dead_letter_expired" default:"false" option:"SubscribeOptions.DeadLetterExpired" doc:"Sends expired events to the dead-letter topic; otherwise they are discarded."`
	DeadLetterOnReceive flag                     `key:"dead_letter_on_receive" default:"false" option:"SubscribeOptions.DeadLetterOnReceive" doc:"Sends an event that failed after the acknowledgement on receive to the dead-letter topic; otherwise it is discarded."`
	Limits              limits                   `key:"limits" doc:"More limits, which your program can also set with a limiter."`
	Retry               retry                    `key:"retry" option:"SubscribeOptions.Retry" doc:"How often and when a failed event is retried."`
	OnFailure           enum[eventbus.OnFailure] `key:"on_failure" default:"skip" option:"SubscribeOptions.OnFailure" doc:"Whether later events of a key still run after one has failed for good, or follow it to the dead-letter topic."`
	DeadLetter          deadLetter               `key:"dead_letter" option:"SubscribeOptions.DeadLetter" example:"shop.orders.dlq" doc:"The topic for events that fail for good. Default: the topic with .dlq appended. The word (discard) discards such events."`
	Batch               batch                    `key:"batch" doc:"Batches, for a handler that takes several events per call. Concurrency then counts calls."`
}

type batch struct {
	Size  number   `key:"size" default:"100" min:"1" option:"Batch.MaxSize" doc:"The most events of a batch."`
	Bytes size     `key:"bytes" min:"1B" example:"4MiB" option:"Batch.MaxBytes" doc:"The maximum payload bytes of a batch; a larger event gets a batch of its own. Default: no limit."`
	Wait  duration `key:"wait" default:"10ms" min:"1us" none:"none" option:"Batch.MaxWait" doc:"How long the first event of a batch waits for others; none: not at all."`
}

type retry struct {
	Attempts number          `key:"attempts" default:"12" min:"1" none:"unlimited" option:"SubscribeOptions.Retry.MaxAttempts" doc:"How often a handler may fail before the event goes to the dead-letter topic."`
	Backoff  durationRange   `key:"backoff" default:"1s..10m" min:"1ms" option:"SubscribeOptions.Retry.Initial,SubscribeOptions.Retry.Max" doc:"The delay after the first failure, and the longest delay. Each further failure doubles the delay."`
	Jitter   share           `key:"jitter" default:"0.2" option:"SubscribeOptions.Retry.Jitter" doc:"Randomizes delays by up to this share in either direction; 0 means not at all."`
	Rules    map[string]rule `key:"rules" option:"SubscribeOptions.Retry.Rules" doc:"Other retries after errors of a class, by the name of the class. The program names the classes (Options.ErrorClasses); panic and timeout are always there." each:"Retries after errors of the class of this name. A key that is left out changes nothing."`
}

// A field describes one key of the model, by the tags of a struct field.
type field struct {
	key, doc, defaultText, example, min, noneText, eachDoc, alternative string
	options                                                             []string
	required, rest                                                      bool
	index                                                               int
	typ                                                                 reflect.Type
}

// fields returns the keys that the struct type t of the model has.
func fields(t reflect.Type) []*field {
	return slices.DeleteFunc(allFields(t), func(f *field) bool { return f.rest })
}

// restOf returns the field of t for keys that the model does not know, or nil.
func restOf(t reflect.Type) *field {
	all := allFields(t)
	if i := slices.IndexFunc(all, func(f *field) bool { return f.rest }); i >= 0 {
		return all[i]
	}
	return nil
}

func allFields(t reflect.Type) []*field {
	list := make([]*field, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		if t == reflect.TypeFor[defaults]() && slices.Contains(keysWithoutDefault, f.Tag.Get("key")) {
			continue
		}
		list = append(list, &field{
			key: f.Tag.Get("key"), doc: f.Tag.Get("doc"), defaultText: f.Tag.Get("default"), example: f.Tag.Get("example"),
			min: f.Tag.Get("min"), noneText: f.Tag.Get("none"), eachDoc: f.Tag.Get("each"), alternative: f.Tag.Get("or"),
			options:  split(f.Tag.Get("option")),
			required: f.Tag.Get("required") != "", rest: f.Tag.Get("rest") != "", index: i, typ: f.Type,
		})
	}
	return list
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// file returns the name of the key that may replace the key of a secret: its value is the
// path of a file that holds the secret. ok is false if f is no secret.
func (f *field) file() (key string, ok bool) {
	return f.key + "_file", f.typ == reflect.TypeFor[secret]()
}

// options returns the bus options that the file can set.
func (b *bus) options() eventbus.Options {
	return eventbus.Options{
		Service:         string(b.Service),
		Instance:        string(b.Instance),
		Timeout:         b.Timeout.value(),
		OpenTimeout:     b.OpenTimeout.value(),
		PublishTimeout:  b.PublishTimeout.value(),
		DrainTimeout:    b.DrainTimeout.value(),
		Dedup:           bool(b.Dedup),
		MaxPayload:      int(min(b.MaxPayload, math.MaxInt)),
		MaxPending:      int(b.MaxPending),
		MaxPendingBytes: int(min(b.MaxPendingBytes, math.MaxInt)),
		WhenFull:        b.WhenFull.value,
		Topics:          b.topics(),
	}
}

// topics returns the settings of topics that the file gives to the bus. The other ones are of
// the driver.
func (b *bus) topics() (all map[string]eventbus.TopicOptions) {
	for name, t := range b.Topics {
		o := eventbus.TopicOptions{Keep: t.Keep.value(), MaxMessages: int64(t.MaxMessages), MaxBytes: int64(t.MaxBytes), Partitions: int(t.Partitions)}
		for _, group := range t.Groups {
			o.Groups = append(o.Groups, string(group))
		}
		if reflect.ValueOf(o).IsZero() {
			continue
		}
		if all == nil {
			all = map[string]eventbus.TopicOptions{}
		}
		all[name] = o
	}
	return all
}

// options returns the subscription options that the file can set.
func (s *subscription) options() eventbus.SubscribeOptions {
	return eventbus.SubscribeOptions{
		Group:          string(s.Group),
		Topics:         s.topics(),
		Ack:            s.Ack.value,
		Order:          s.Order.value,
		OnFailure:      s.OnFailure.value,
		Start:          eventbus.Start(s.Start),
		Concurrency:    int(s.Concurrency.Min),
		MaxConcurrency: int(s.Concurrency.Max),
		MaxInFlight:    int(s.MaxInFlight),
		MaxBytes:       int64(s.MaxBytes),
		MaxRedelivered: int(s.Limits.Redelivered),

		Lease:   s.Lease.value(),
		Timeout: s.Timeout.value(),
		Retry: eventbus.Retry{
			MaxAttempts: int(s.Retry.Attempts),
			Initial:     s.Retry.Backoff.Initial,
			Max:         s.Retry.Backoff.Max,
			Jitter:      float64(s.Retry.Jitter),
			Rules:       s.Retry.rules(),
		},
		LeaveTimeouts:       bool(s.LeaveTimeouts),
		MaxReceive:          int64(s.MaxReceive),
		DeadLetterExpired:   bool(s.DeadLetterExpired),
		DeadLetterOnReceive: bool(s.DeadLetterOnReceive),
		DeadLetter:          string(s.DeadLetter),
	}
}

// topics returns the list of topics, or nil if there is a single topic or pattern.
func (s *subscription) topics() (list []string) {
	for _, t := range s.Topics {
		list = append(list, string(t))
	}
	return list
}

// options returns the batch options that the file can set.
func (b *batch) options() eventbus.Batch {
	return eventbus.Batch{MaxSize: int(b.Size), MaxBytes: int64(b.Bytes), MaxWait: b.Wait.value()}
}

// A rule holds the keys of an [eventbus.RetryRule], whose class is the name of the rule.
type rule struct {
	Attempts number        `key:"attempts" min:"1" none:"unlimited" example:"1" doc:"How often a handler may fail before the event goes to the dead-letter topic."`
	Backoff  durationRange `key:"backoff" min:"1ms" example:"1m..1h" doc:"The delay after the first failure, and the longest delay."`
	Discard  flag          `key:"discard" doc:"Discards the event after its last attempt, without a dead letter."`
}

// rules returns the rules for errors of classes, sorted by the name of the class.
func (r *retry) rules() (rules []eventbus.RetryRule) {
	for _, class := range slices.Sorted(maps.Keys(r.Rules)) {
		rule := r.Rules[class]
		rules = append(rules, eventbus.RetryRule{
			Class: class, MaxAttempts: int(rule.Attempts), Initial: rule.Backoff.Initial, Max: rule.Backoff.Max, Discard: bool(rule.Discard),
		})
	}
	return rules
}
