package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus"
)

// defaultMaxReceive is the default of SubscribeOptions.MaxReceive, which no text repeats.
const defaultMaxReceive = 10 << 20

// Describe explains the [eventbus.Options] that Open uses, including defaults, in plain words and
// without secrets.
func (c *Config) Describe() string {
	o := c.Options().Effective()
	full := map[eventbus.WhenFull]string{
		eventbus.WaitWhenFull: "then Publish waits", eventbus.RejectWhenFull: "then Publish is refused",
		eventbus.DropNewest: "then new events are dropped", eventbus.DropOldest: "then the events that have waited longest are dropped",
	}[o.WhenFull]
	var parts []string
	if o.OpenTimeout > 0 {
		parts = append(parts, "Open waits for its broker "+describeTimeout(o.OpenTimeout))
	}
	parts = append(parts,
		"each Publish "+describeTimeout(o.PublishTimeout),
		fmt.Sprintf("at most %s events or %s wait to be published, %s", groupThousands(o.MaxPending), byteCount(int64(o.MaxPendingBytes)), full))
	if o.Dedup {
		parts = append(parts, "an event is stored once while the backend remembers its ID")
	}
	if o.Instance != "" {
		parts = append(parts, "after a crash the restarted instance "+o.Instance+" gets the events that it held at once")
	}
	return strings.Join(append(parts, "the shutdown after Run "+describeTimeout(o.DrainTimeout)), "; ")
}

// DescribeSubscription explains the options of a subscription, including defaults, and what they
// mean in the worst case.
func (c *Config) DescribeSubscription(name string) (string, error) {
	s, ok := c.bus.Subscriptions[name]
	if !ok {
		return "", c.unknown(name)
	}
	o := s.options()
	if o.Timeout == 0 {
		o.Timeout = c.bus.Timeout.value()
	}
	each, err := s.effective(o)
	if err != nil {
		return "", c.located(subscriptionPath(name), err)
	}
	o.MaxInFlight, o.MaxRedelivered = each.MaxInFlight, 0 // which count events, not batches
	if o, err = o.Effective(string(s.Topic)); err != nil {
		return "", c.located(subscriptionPath(name), err)
	}
	parts := []string{strings.Join([]string{
		s.describeTopics(), "group " + o.Group + c.describeSharing(name), describeConcurrency(o), describeOrder(o.Order),
	}, ", ")}
	if s.Batch != (batch{}) {
		parts = append(parts, describeBatch(s.Batch.options()))
	}
	if o.Start != eventbus.StartEarliest {
		parts = append(parts, describeStart(o.Start))
	}
	if o.Ack == eventbus.AckOnReceive {
		failed := "are discarded"
		if o.DeadLetterOnReceive {
			failed = "go to " + deadLetterTopic(o)
		}
		parts = append(parts, "acknowledged before it runs, so failed events "+failed, describeRunTimeout(o.Timeout))
	} else {
		parts = append(parts, "acknowledged on success", describeRunTimeout(o.Timeout))
		if o.LeaveTimeouts && o.Timeout > 0 {
			parts = append(parts, "a run that times out leaves its event until the lease ends, "+roundDuration(o.Lease))
		}
		parts = append(parts, describeRetries(o))
		for _, r := range o.Retry.Rules {
			parts = append(parts, describeRule(r))
		}
	}
	if o.OnFailure == eventbus.FailAll {
		parts = append(parts, "later events of its key follow it there")
	}
	if o.MaxReceive > 0 && o.MaxReceive != defaultMaxReceive {
		parts = append(parts, "an event of more than "+byteCount(o.MaxReceive)+" "+describeDeadLetter(o)+" without a run")
	}
	if o.DeadLetterExpired {
		parts = append(parts, "an expired event "+describeDeadLetter(o))
	}
	parts = append(parts, s.Limits.describe()...)
	held := "at most " + groupThousands(o.MaxInFlight) + " events"
	if o.MaxBytes > 0 {
		held += " or " + byteCount(o.MaxBytes)
	}
	return strings.Join(append(parts, held+" held", "others get them if this member is silent for "+roundDuration(o.Lease)), "; "), nil
}

// describeSharing names the other subscriptions of the same topic and group, which share its
// events.
func (c *Config) describeSharing(name string) string {
	s := c.bus.Subscriptions[name]
	var others []string
	for _, other := range c.Subscriptions() {
		if o := c.bus.Subscriptions[other]; other != name && o.describeTopics() == s.describeTopics() && o.Group == s.Group {
			others = append(others, other)
		}
	}
	if others == nil {
		return ""
	}
	return " (its events are shared with " + strings.Join(others, ", ") + ")"
}

func describeTimeout(d time.Duration) string {
	if d < 0 {
		return "has no time limit"
	}
	return "takes at most " + roundDuration(d)
}

func describeOrder(o eventbus.Order) string {
	switch o {
	case eventbus.OrderTotal:
		return "in order"
	case eventbus.Unordered:
		return "in no order"
	default:
		return "in order of keys"
	}
}

func describeBatch(b eventbus.Batch) string {
	full, err := b.Effective()
	if err != nil {
		return err.Error()
	}
	words := "in batches of up to " + groupThousands(full.MaxSize) + " events"
	if full.MaxBytes > 0 {
		words += " or " + byteCount(full.MaxBytes)
	}
	if full.MaxWait < 0 {
		return words + " that do not wait to fill"
	}
	return words + " that wait " + roundDuration(full.MaxWait) + " to fill"
}

func describeConcurrency(o eventbus.SubscribeOptions) string {
	if o.MaxConcurrency > o.Concurrency {
		return groupThousands(o.Concurrency) + " to " + groupThousands(o.MaxConcurrency) + " at a time"
	}
	return groupThousands(o.Concurrency) + " at a time"
}

func describeStart(s eventbus.Start) string {
	if s == eventbus.StartLatest {
		return "a new group starts with the events published from then on"
	}
	if t, ok := s.At(); ok {
		return "a new group starts with the events stored since " + t.Format(time.RFC3339)
	}
	return "a new group starts after the given position"
}

func describeRunTimeout(timeout time.Duration) string {
	if timeout < 0 {
		return "each run without a time limit"
	}
	return "each run at most " + roundDuration(timeout)
}

// describeRetries returns a text about the retries of an event that fails every time, and where it goes after
// its last attempt.
func describeRetries(o eventbus.SubscribeOptions) string {
	goes := describeDeadLetter(o)
	_, then, _ := strings.Cut(goes, " ") // without its verb
	if o.Retry.MaxAttempts < 0 {
		return fmt.Sprintf("unlimited attempts, %s to %s apart; a permanent failure %s",
			roundDuration(o.Retry.Initial), roundDuration(o.Retry.Max), goes)
	}
	if o.Retry.MaxAttempts == 1 {
		return "one attempt, then " + then
	}
	usual, worst := delays(o.Retry)
	words := fmt.Sprintf("up to %s attempts over about %s", groupThousands(o.Retry.MaxAttempts), roundDuration(usual))
	if o.Timeout > 0 {
		if o.LeaveTimeouts {
			worst = addCapped(worst, mulCapped(o.Lease, o.Retry.MaxAttempts-1))
		}
		words += fmt.Sprintf(" (at worst %s, if every attempt finds a free handler and times out)", roundDuration(addCapped(worst, mulCapped(o.Timeout, o.Retry.MaxAttempts))))
	} else {
		words += fmt.Sprintf(" (at worst %s plus the runs themselves, which have no time limit)", roundDuration(worst))
	}
	return words + ", then " + then
}

// describeDeadLetter returns how an event ends that is not acknowledged.
func describeDeadLetter(o eventbus.SubscribeOptions) string {
	if o.DeadLetter == eventbus.DiscardDeadLetters {
		return "is discarded"
	}
	return "goes to " + deadLetterTopic(o)
}

// deadLetterTopic names the dead-letter topic.
func deadLetterTopic(o eventbus.SubscribeOptions) string {
	if o.DeadLetter == "" {
		return "the dead-letter topic of its topic"
	}
	return o.DeadLetter
}

// describeTopics names the topics of s.
func (s *subscription) describeTopics() string {
	return strings.Join(append(s.topics(), strings.Fields(string(s.Topic))...), " and ")
}

// delays returns the sum of the delays between all attempts. usual is the sum without
// jitter, and worst the sum with the most jitter. The waits for a free handler are left
// out.
func delays(r eventbus.Retry) (usual, worst time.Duration) {
	d := r.Initial
	for i := 1; i < r.MaxAttempts; i++ {
		if d = min(d, r.Max); d == r.Max {
			usual = addCapped(usual, mulCapped(d, r.MaxAttempts-i))
			break
		}
		usual, d = addCapped(usual, d), addCapped(d, d)
	}
	spread := float64(usual) * max(r.Jitter, 0)
	if spread >= math.MaxInt64 {
		return usual, math.MaxInt64
	}
	return usual, addCapped(usual, time.Duration(spread))
}

// addCapped and times return the longest duration instead of overflowing.
func addCapped(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func mulCapped(d time.Duration, n int) time.Duration {
	if d > 0 && time.Duration(n) > math.MaxInt64/d {
		return math.MaxInt64
	}
	return d * time.Duration(n)
}

// roundDuration rounds a duration for people.
func roundDuration(d time.Duration) string {
	if d > time.Minute {
		d = d.Round(time.Second)
	}
	if d > 100*24*time.Hour {
		return "more than " + groupThousands(int64(d/(24*time.Hour))) + " days"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// byteCount writes a size in the largest unit that needs no fraction.
func byteCount(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"KB", 1e3}} {
		if n >= u.size && n%u.size == 0 {
			return groupThousands(n/u.size) + " " + u.name
		}
	}
	return groupThousands(n) + " bytes"
}

// groupThousands writes a number with commas.
func groupThousands[N int | int64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// describeRule describes a rule for a class of errors.
func describeRule(r eventbus.RetryRule) string {
	var does []string
	switch {
	case r.MaxAttempts < 0:
		does = append(does, "unlimited attempts")
	case r.MaxAttempts == 1:
		does = append(does, "one attempt")
	case r.MaxAttempts > 1:
		does = append(does, "up to "+groupThousands(r.MaxAttempts)+" attempts")
	}
	if r.Initial > 0 {
		does = append(does, roundDuration(r.Initial)+" to "+roundDuration(max(r.Max, r.Initial))+" apart")
	}
	if r.Discard {
		does = append(does, "then discarded")
	}
	return "after errors of class " + r.Class + ": " + strings.Join(does, ", ")
}
