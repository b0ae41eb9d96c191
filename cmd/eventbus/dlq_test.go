//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/deadletter"
	"github.com/seed41896749/eventbus/eventbustest"
	"github.com/seed41896749/eventbus/observer"
)

func TestDLQ(t *testing.T) {
	onEachAtOnce(t, func(t *testing.T, b *bench) {
		b.ok(numbered(6), "pub", "orders")
		const failing = `[ $EVENTBUS_ID = e-0 ] || { echo no such item >&2; exit 65; }`
		b.failed(5, "sub", "orders", "--group", "billing", "--idle-exit", "100ms", "--exec", failing)
		var classes []deadletter.Class
		r := b.ok("", "dlq", "ls", "orders.dlq", "--json")
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &classes))
		require.Len(t, classes, 1)
		require.Equal(t, "orders/billing permanent t 5", fmt.Sprint(classes[0].Topic, "/", classes[0].Group, " ", classes[0].Reason, " ", classes[0].Type, " ", classes[0].Letters))
		require.Contains(t, b.ok("", "dlq", "ls", "orders.dlq").stdout, "no such item")
		require.Empty(t, b.ok("", "dlq", "ls", "orders.dlq", "--type", "other").stdout)

		none := b.ok("", "dlq", "show", "orders.dlq", "--error-class", "netwrk")
		require.Equal(t, result{stderr: "no dead letter matches\n"}, none)
		show := b.ok("", "dlq", "show", "orders.dlq", "--id", "e-2").stdout
		require.Contains(t, show, "e-2  orders/billing  permanent after 1 attempt,")
		require.Contains(t, show, `{"n":2}`)
		require.NotContains(t, show, "e-3")
		export := b.ok("", "dlq", "export", "orders.dlq")
		require.Len(t, export.lines(), 5)
		require.Contains(t, export.lines()[0], `"dead":{"reason":"permanent","error":"`)
		require.Equal(t, "e-1", export.events(t)[0].ID)
		require.JSONEq(t, `{"n":1}`, string(export.events(t)[0].Data))

		require.Equal(t, "would be redriven: 5, left: redriven too often 0, without their group 0, refused 0\n", b.ok("", "dlq", "redrive", "orders.dlq", "--dry-run").stdout)
		fixed := filepath.Join(t.TempDir(), "fixed.json")
		require.NoError(t, os.WriteFile(fixed, []byte(`{"n":200}`), 0o600))
		require.Contains(t, b.ok("", "dlq", "redrive", "orders.dlq", "--id", "e-2", "--data", fixed).stdout, "redriven 1,")
		require.Contains(t, b.ok("", "dlq", "redrive", "orders.dlq", "--limit", "1").stdout, "redriven 1,")
		require.Contains(t, b.run("", "dlq", "redrive", "orders.dlq", "--group", "biling").stderr, `no dead letter is of the group "biling"; did you mean billing?`)
		require.Contains(t, b.run("", "dlq", "ls", "order.dlq").stderr, `there is no topic "order.dlq"; did you mean orders.dlq?`)
		require.Contains(t, b.run("", "dlq", "ls", "orders").stderr, "orders is not a dead-letter topic: its first event is not a dead letter; did you mean orders.dlq?")
		ages := regexp.MustCompile(`\d+s +`) // a second may pass in between
		require.Equal(t, ages.ReplaceAllString(b.ok("", "dlq", "ls", "orders.dlq").stdout, ""), ages.ReplaceAllString(b.ok("", "dlq", "ls").stdout, ""), "all dead-letter topics")
		got := b.ok("", "sub", "orders", "--group", "billing", "--idle-exit", "100ms").events(t)
		require.Len(t, got, 2)
		require.Equal(t, "e-2 1 e-1 1", fmt.Sprint(got[0].ID, " ", got[0].Attempt, " ", got[1].ID, " ", got[1].Attempt))
		require.JSONEq(t, `{"n":200}`, string(got[0].Data))

		require.Equal(t, "discarded 1\n", b.ok("", "dlq", "discard", "orders.dlq", "--id", "e-3").stdout)
		require.Equal(t, "purged 1\n", b.ok("", "dlq", "purge", "orders.dlq", "--keep", "1").stdout)
		require.Equal(t, "purged 0\n", b.ok("", "dlq", "purge", "orders.dlq", "--older-than", "1h").stdout)
		require.JSONEq(t, `{"purged": 0}`, b.ok("", "dlq", "purge", "orders.dlq", "--older-than", "1h", "--json").stdout)
		require.Equal(t, "purged 0\n", b.ok("", "dlq", "purge", "orders.dlq", "--older-than", "1h", "--keep", "1", "--keep-bytes", "1MiB").stdout)
		left := b.ok("", "dlq", "export", "orders.dlq").events(t)
		require.Len(t, left, 1)
		require.Equal(t, "e-5", left[0].ID)
		for want, args := range map[string][]string{
			"select dead letters with a flag":        {"discard", "orders.dlq"},
			"give --keep":                            {"purge", "orders.dlq"},
			"--keep is less than 1":                  {"purge", "orders.dlq", "--keep", "0", "--older-than", "1h"},
			"not a size":                             {"purge", "orders.dlq", "--keep-bytes", "1"},
			"--keep-bytes is less":                   {"purge", "orders.dlq", "--keep-bytes", "0B", "--keep", "5"},
			"did you mean exhausted?":                {"discard", "orders.dlq", "--reason", "exhaustd"},
			"; --error-class selects by error class": {"redrive", "orders.dlq", "--reason", "unknown-type"},
			"--id is empty":                          {"discard", "orders.dlq", "--group", "billing", "--id", ""},
			"--error-class is empty":                 {"redrive", "orders.dlq", "--error-class", ""},
			"--rate must not be":                     {"redrive", "orders.dlq", "--rate", "-5"},
			"--max-redrives is 0":                    {"redrive", "orders.dlq", "--max-redrives", "0"},
			"open :":                                 {"redrive", "orders.dlq", "--id", "e-1", "--data", ""},
			"--data needs --id":                      {"redrive", "orders.dlq", "--data", fixed},
			"must not be negative":                   {"redrive", "orders.dlq", "--limit", "-1"},
			"needs a topic":                          {"show"},
		} {
			r := b.run("", append([]string{"dlq"}, args...)...)
			require.Equal(t, 1, r.code)
			require.Contains(t, r.stderr, want)
		}
	})
}

// A terminal would obey the control characters of an event.
func TestDeadLettersAreShownWithoutControlCharacters(t *testing.T) {
	b := newBench(t)
	b.ok("", "pub", "orders", "--data", "red: \x1b[31m, \u009b31m, \xff", "--id", "e-1")
	require.NoError(t, b.b.Publish(t.Context(), []*backend.Message{{
		Topic: "orders", ID: "e\x1b[2J", Headers: backend.Headers{{Name: "ce-type", Value: "a\tb\x1b[2J"}},
	}}))
	b.failed(2, "sub", "orders", "--group", "billing", "--idle-exit", "100ms", "--exec", "exit 65")
	show := b.ok("", "dlq", "show", "orders.dlq").stdout
	require.Contains(t, show, "red: ?[31m, ?31m, ?\n")
	for _, text := range []string{show, b.ok("", "dlq", "ls", "orders.dlq").stdout} {
		require.NotContains(t, text, "\x1b")
		require.NotContains(t, text, "\u009b")
		require.Contains(t, text, "b?[2J")
	}
}

// letterErrors are four classes of errors.
var letterErrors = []struct {
	class string
	err   error
}{
	{"*errors.errorString", errors.New("out of stock")},
	{"context.deadlineExceededError", fmt.Errorf("calling the bank: %w", context.DeadlineExceeded)},
	{"url.EscapeError", url.EscapeError("%zz")},
	{"*json.SyntaxError", &json.SyntaxError{}},
}

// A till is a group of two members, and another group, of the topic orders.
type till struct {
	mu      sync.Mutex
	fixed   bool
	charged map[string]int // by ID
	audited int
}

func (s *till) charge(_ context.Context, d *eventbus.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fixed {
		n, _ := strconv.Atoi(d.ID)
		return eventbus.Permanent(letterErrors[n%len(letterErrors)].err)
	}
	s.charged[d.ID]++
	return nil
}

func (s *till) audit(context.Context, *eventbus.Delivery) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.audited++
	return nil
}

func (s *till) count() (charged, audited int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.charged), s.audited
}

// A redrive of 250 of 1,000 letters is killed twice. Each event comes once to the group that
// failed, and to no other.
func TestRedriveIsKilled(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			at := brokerBench{k.start(t), t}
			s := &till{charged: map[string]int{}}
			bus := eventbustest.On(t, openBackend(t, k.driver, at.URL()), eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}})
			for range 2 {
				_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing", Concurrency: 4}, s.charge)
				require.NoError(t, err)
			}
			_, err := bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "audit", Concurrency: 4}, s.audit)
			require.NoError(t, err)
			es := make([]*eventbus.Event, 1000)
			for i := range es {
				es[i] = &eventbus.Event{ID: strconv.Itoa(i)}
			}
			require.NoError(t, bus.Publish(t.Context(), "orders", es...))
			await(t, "four classes of 250", func() bool { return listed(t, at) == "250 250 250 250 " })
			s.mu.Lock()
			s.fixed = true
			s.mu.Unlock()

			redrive := []string{"dlq", "redrive", "orders.dlq", "--error-class", letterErrors[1].class, "--rate", "100"}
			for _, atLeast := range []int{1, 101} {
				cmd := at.process(redrive...)
				require.NoError(t, cmd.Start())
				await(t, "some are redriven", func() bool { n, _ := s.count(); return n >= atLeast })
				require.NoError(t, cmd.Process.Kill())
				require.Error(t, cmd.Wait(), "it ended before it was killed")
			}
			out, err := at.process(redrive...).Output()
			require.NoError(t, err)
			t.Logf("the last redrive: %s", bytes.TrimSpace(out))

			await(t, "250 are charged", func() bool { n, _ := s.count(); return n == 250 })
			require.Equal(t, "250 250 250 ", listed(t, at))
			require.NoError(t, bus.Shutdown(t.Context()), "all is settled")
			for id, n := range s.charged {
				number, _ := strconv.Atoi(id)
				require.Equal(t, 1, number%4, "event %s was not to be redriven", id)
				require.Equal(t, 1, n, "event %s", id)
			}
			_, audited := s.count()
			require.Equal(t, 1000, audited, "the other group got redriven events")
		})
	}
}

// listed returns how many letters there are of each class.
func listed(t *testing.T, at brokerBench) (counts string) {
	var classes []deadletter.Class
	out, err := at.process("dlq", "ls", "orders.dlq", "--json").Output()
	if err != nil {
		return "" // there is no letter yet
	}
	require.NoError(t, json.Unmarshal(out, &classes))
	for _, c := range classes {
		counts += fmt.Sprint(c.Letters, " ")
	}
	return counts
}

// The flag --reason takes every reason of package eventbus that a dead letter can have. The
// comments of the other reasons begin with "discarded".
func TestReasonsAreComplete(t *testing.T) {
	text, err := os.ReadFile("../../deadletter.go")
	require.NoError(t, err)
	constants := regexp.MustCompile(`(?m)^\tReason\w+ +=.*// (.*)$`).FindAllStringSubmatch(string(text), -1)
	letters := slices.DeleteFunc(constants, func(c []string) bool { return strings.HasPrefix(c[1], "discarded:") })
	require.NotEmpty(t, letters)
	require.Len(t, reasons, len(letters))
}
