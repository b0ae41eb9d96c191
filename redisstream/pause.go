package redisstream

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/seed41896749/eventbus/backend"
)

var _ backend.Pauser = (*Backend)(nil)

// Pause implements [backend.Pauser]. The pause of a group is a key, with a text in the form of
// a URL query, such as since=1795255882779698&by=ada&why=INC-7. The key expires at the end of the
// pause. Members see it at the next run of take.lua, within half a second. Resume and the
// end of a pause are seen by the next Receive.
func (b *Backend) Pause(ctx context.Context, topic, group string, p backend.Pause) error {
	if err := p.Check(); err != nil {
		return b.failure("pause", topic+"/"+group, err)
	}
	text, until := url.Values{"by": {p.By}, "why": {p.Why}}, int64(0)
	if !p.Until.IsZero() {
		text.Set("until", p.Until.UTC().Format(time.RFC3339Nano))
		until = max(p.Until.Add(time.Millisecond-time.Nanosecond).UnixMilli(), 1) // rounded up
	}
	_, err := b.pause(ctx, pauseKeys(b.streamKey(topic), group), group, "begin", until, text.Encode())
	return b.failure("pause", topic+"/"+group, err)
}

// Resume implements [backend.Pauser].
func (b *Backend) Resume(ctx context.Context, topic, group string) error {
	_, err := b.pause(ctx, pauseKeys(b.streamKey(topic), group), group, "end")
	return b.failure("resume", topic+"/"+group, err)
}

// Paused implements [backend.Pauser].
func (b *Backend) Paused(ctx context.Context, topic, group string) (backend.Pause, error) {
	text, err := b.pause(ctx, pauseKeys(b.streamKey(topic), group), group, "ask")
	return readPause(text), b.failure("ask for the pause of", topic+"/"+group, err)
}

func pauseKeys(stream, group string) []string {
	return []string{stream, pauseKey(delayedKey(stream, group))}
}

// pause runs pause.lua, and returns the text of the present pause.
func (b *broker) pause(ctx context.Context, keys []string, args ...any) (text []byte, err error) {
	c := b.run(ctx, pauseScript, keys, args...)
	text = c.bulk()
	return text, c.err
}

// readPause reads the text of a pause. An empty text is no pause.
func readPause(text []byte) (p backend.Pause) {
	values, err := url.ParseQuery(string(text))
	if err != nil || len(text) == 0 {
		return p
	}
	micros, _ := strconv.ParseInt(values.Get("since"), 10, 64)
	p = backend.Pause{Since: time.UnixMicro(micros), By: values.Get("by"), Why: values.Get("why")}
	p.Until, _ = time.Parse(time.RFC3339Nano, values.Get("until"))
	return p
}
