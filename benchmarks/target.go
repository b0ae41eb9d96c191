package main

import "context"

// A target is a system that the suite measures. It has rows in the tables.
type target struct {
	name string
	kind string
	base string // the raw client; ratios of this target are ratios to it
	note string

	// live is true if the target keeps no events for a later consumer. Then each cell
	// attaches a consumer before it publishes, even if it measures only publishing.
	live bool

	open func(ctx context.Context, e env) (bus, error)
}

// does reports whether the suite measures cell c on the target. It leaves out cells that
// have no meaning for the target.
func (t target) does(c cell) bool {
	if c.payload > 0 && t.base == rawChannel {
		return false // a channel passes a reference, so the payload size does not matter
	}
	switch c.op {
	case opTopics:
		return t.kind != peer && t.base != rawChannel || t.name == "eventbus-mem"
	case opBacklog:
		return t.base == rawRedis && t.kind != peer
	case opMemory:
		return t.base != rawChannel && t.kind != peer
	}
	return true
}

const (
	ceiling = "ceiling"
	peer    = "peer"
	ours    = "ours"
)

const (
	rawChannel = "raw-chan"
	rawRedis   = "raw-redis"
	rawNATS    = "raw-nats"
	headedNATS = "raw-nats-h" // raw-nats with an event's headers
)

// targets lists all targets. To add a target, add a file with its bus, and an entry here.
var targets = []target{
	{
		name: rawChannel, kind: ceiling, base: rawChannel, open: openChannel,
		note: "buffered Go channel of []byte; the payload is passed on, not copied",
	},
	{
		name: "wm-gochannel", kind: peer, base: rawChannel, live: true, open: openWatermill,
		note: "Watermill gochannel, OutputChannelBuffer 1024; one subscription keeps one message in flight",
	},
	{
		name: "gocloud-mem", kind: peer, base: rawChannel, open: openGocloud,
		note: "gocloud.dev mempubsub; no call that publishes many, so a batch is a goroutine per message",
	},
	{
		name: "eventbus-mem", kind: ours, base: rawChannel, open: openEventbusMemory,
		note: "the bus on inmemory, default options, Concurrency as the cell says",
	},
	{
		name: rawRedis, kind: ceiling, base: rawRedis, open: openRawRedis,
		note: "go-redis: XADD, pipelined in a batch; XREADGROUP COUNT 256 ahead of the handlers, one XACK for each read",
	},
	{
		name: "wm-redis", kind: peer, base: rawRedis, open: openWatermillRedis,
		note: "Watermill redisstream, defaults; as many subscriptions as handlers",
	},
	{
		name: "asynq", kind: peer, base: rawRedis, open: openAsynq,
		note: "a task queue; no call that publishes many; cannot tell what is unsettled",
	},
	{
		name: "eventbus-redis", kind: ours, base: rawRedis, open: openEventbusRedis,
		note: "the bus on redisstream, default options, Concurrency as the cell says",
	},
	{
		name: rawNATS, kind: ceiling, base: rawNATS, open: openRawNATS,
		note: "nats.go: jetstream Publish, PublishAsync in a batch; Consume with pulls of 1000, a one-way Ack for each message",
	},
	{
		name: headedNATS, kind: peer, base: rawNATS, open: openHeadedNATS,
		note: "the same, and each message has two headers as an event has them: ID and time; to this one the goals are",
	},
	{
		name: "wm-nats", kind: peer, base: rawNATS, open: openWatermillNATS,
		note: "Watermill nats, defaults, so acknowledgements are confirmed; as many subscriptions as handlers",
	},
	{
		name: "eventbus-nats", kind: ours, base: rawNATS, open: openEventbusNATS,
		note: "the bus on nats, default options, Concurrency as the cell says",
	},
}

// A bus is a target that is opened for one trial. It has one empty topic and, if the target
// has groups, one group. The suite closes it after the trial, so that no part of it runs
// during the next trial.
type bus interface {
	// publish returns when the event is stored.
	publish(ctx context.Context, payload []byte) error

	// publishBatch returns when every event is stored.
	publishBatch(ctx context.Context, payloads [][]byte) error

	// consume attaches a consumer to the group and returns. At most concurrency calls of
	// handle run at the same time. Each event is acknowledged after its call of handle has
	// returned. stop returns when all these calls have returned and all acknowledgements
	// are made.
	consume(ctx context.Context, concurrency int, handle func(payload []byte)) (stop func() error, err error)

	close(ctx context.Context) error
}

// A checker is a bus that can count the events that are published but not settled. The
// suite asks it after each trial that consumes.
type checker interface {
	unsettled(ctx context.Context) (int64, error)
}
