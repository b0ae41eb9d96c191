package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// A patient is a backend that the command looks at, by any way to run commands.
type patient struct {
	t   *testing.T
	run func(args ...string) result
}

func (b *bench) patient() patient {
	return patient{b.t, func(args ...string) result { b.t.Helper(); return b.run("", args...) }}
}

// patientAt returns the backend of a URL, with the drivers of the program.
func patientAt(t *testing.T, url string) patient {
	return patient{t, func(args ...string) result {
		t.Helper()
		var out, errs safeBuffer
		code := run(t.Context(), drivers(), append(args, "--url", url), strings.NewReader(""), &out, &errs)
		return result{code, out.String(), errs.String()}
	}}
}

// finds runs doctor, and returns its findings by code, and its summary.
func (p patient) finds(code int, args ...string) (map[string]findingLine, summaryNumbers) {
	p.t.Helper()
	r := p.run(append([]string{"doctor", "--json", "--for", "1ms"}, args...)...)
	require.Equal(p.t, code, r.code, r.stdout+r.stderr)
	found := map[string]findingLine{}
	lines := r.lines()
	require.NotEmpty(p.t, lines, r.stderr)
	for _, l := range lines[:len(lines)-1] {
		var f findingLine
		require.NoError(p.t, json.Unmarshal([]byte(l), &f), l)
		require.NotEmpty(p.t, f.Remedy, l)
		found[f.Code] = f
	}
	var s summaryLine
	require.NoError(p.t, json.Unmarshal([]byte(lines[len(lines)-1]), &s))
	require.Equal(p.t, len(lines)-1, s.Summary.Errors+s.Summary.Warnings+s.Summary.Notes)
	return found, s.Summary
}

// pastes runs the command of a finding as a shell would. Commands of this program run in the test.
func (p patient) pastes(f findingLine) {
	p.t.Helper()
	require.NotEmpty(p.t, f.Command, f.Code)
	if !strings.HasPrefix(f.Command, "eventbus ") {
		out, err := exec.Command("sh", "-c", f.Command).CombinedOutput()
		require.NoError(p.t, err, string(out))
		require.NotContains(p.t, string(out), "ERR")
		return
	}
	words, err := exec.Command("sh", "-c", `printf '%s\n' `+f.Command).Output()
	require.NoError(p.t, err)
	r := p.run(strings.Fields(string(words))[1:]...)
	require.Zero(p.t, r.code, r.stderr)
}

// healthy checks that the command finds nothing.
func (p patient) healthy(args ...string) {
	p.t.Helper()
	found, _ := p.finds(0, args...)
	require.Empty(p.t, found)
}

// durable is a Redis as docs/redis.md asks for it.
func durable(t *testing.T, more ...redistest.Option) *redistest.Server {
	return redistest.Start(t, append(more, redistest.Args("--appendfsync", "everysec"))...)
}

// onEachPatient runs a test on a bench in memory and on one for each kind of broker, set up as the documents ask.
func onEachPatient(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Parallel()
	for name, b := range map[string]func(t *testing.T) *bench{
		"memory": newBench,
		"redis": func(t *testing.T) *bench {
			return &bench{t: t, b: openBackend(t, redisstream.Driver{}, durable(t).URL())}
		},
		"nats": func(t *testing.T) *bench {
			return &bench{t: t, b: openBackend(t, nats.Driver{}, natstest.Start(t).URL())}
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, b(t)) })
	}
}

// A backend without trouble has no finding: before its first event, with a working group, and after its end.
func TestDoctorFindsNothingInHealth(t *testing.T) {
	onEachPatient(t, func(t *testing.T, b *bench) {
		p := b.patient()
		p.healthy()
		b.ok(numbered(3), "pub", "orders")
		r := b.start("sub", "orders", "--group", "billing", "--start", "earliest")
		await(t, "three events", func() bool { return strings.Count(r.out.String(), "\n") >= 3 })
		p.healthy()
		require.Zero(t, r.end().code)
		p.healthy()
		require.Regexp(t, `^0 errors, 0 warnings, 0 notes; looked at \d topics? and 1 group for \d+ s\nnot looked at: whether groups are stuck: look for 1m0s or more\nnot looked at: the settings of members, because no process announces itself\n$`, b.ok("", "doctor", "--for", "1ms").stdout)
	})
}

func TestDoctorFindsNothingInAFile(t *testing.T) {
	t.Parallel()
	url := "bolt:" + filepath.Join(t.TempDir(), "events.db")
	p := patientAt(t, url)
	p.healthy()
	require.Zero(t, p.run("pub", "orders", "--data", "1").code)
	require.Zero(t, p.run("sub", "orders", "--group", "billing", "--start", "earliest", "--count", "1").code)
	p.healthy()

	full := patientAt(t, url+"?min_free=1024GiB")
	found, _ := full.finds(2)
	require.Contains(t, found["bolt-room"].Text, "Publish fails")
	require.NotZero(t, full.run("pub", "orders", "--data", "1").code, "it says what is so")
	p.healthy()
}

// Each trouble of a group is found, and gone after the command of the finding.
func TestDoctorFindsGroups(t *testing.T) {
	onEachPatient(t, func(t *testing.T, b *bench) {
		p := b.patient()
		b.ok("", "groups", "create", "orders", "billing")
		b.ok(numbered(3), "pub", "orders")
		p.healthy() // the events are young

		b.ok("", "groups", "pause", "orders", "billing", "--by", "ann", "--why", "the bank\nis closed")
		found, _ := p.finds(0)
		require.Contains(t, found["group-paused"].Text, "by ann, because: the bank\nis closed. It has not received 3 events")
		require.Contains(t, p.run("doctor", "--for", "1ms").stdout, "because: the bank?is closed.")
		p.finds(1, "--old", "1ms")
		p.pastes(found["group-paused"])
		p.healthy()

		found, _ = p.finds(1, "--late", "1ms")
		late, known := found["group-no-members"]
		if !known { // the backend does not know the members
			late = found["group-behind"]
		}
		require.Contains(t, late.Text, "It has not received 3 events")
		if known {
			found, _ = p.finds(1, "--late", "1ms", "--old", "1ms")
			p.pastes(found["group-abandoned"])
		} else {
			b.ok("", "groups", "delete", "orders", "billing", "--yes")
		}
		found, _ = p.finds(1, "--late", "1ms", "--old", "1ms")
		require.Len(t, found, 1)
		p.pastes(found["topic-unread"])
		p.healthy("--late", "1ms", "--old", "1ms")
	})
}

// Dead letters are a finding if they are many or old, until their events are handled.
func TestDoctorFindsDeadLetters(t *testing.T) {
	onEachPatient(t, func(t *testing.T, b *bench) {
		p := b.patient()
		b.ok("", "groups", "create", "orders", "billing")
		b.ok(numbered(3), "pub", "orders")
		b.failed(1, "sub", "orders", "--group", "billing", "--count", "2", "--exec", `[ "$EVENTBUS_ID" != e-1 ] || exit 65`)
		p.healthy()
		found, _ := p.finds(1, "--letters", "1")
		require.Equal(t, "The topic has 1 dead letter. Most, 1, are of orders/billing: permanent.", found["letters-many"].Text)
		found, _ = p.finds(1, "--old", "1ms")
		require.Contains(t, found["letters-old"].Text, "The topic has 1 dead letter, the oldest of which is ")
		p.pastes(found["letters-old"])
		p.healthy("--letters", "1")
		require.Zero(t, b.run("", "sub", "orders", "--group", "billing", "--count", "1").code)
	})
}

// A group whose members have died with events is found.
func TestDoctorFindsDeadMembers(t *testing.T) {
	b := newBench(t)
	b.ok(numbered(1), "pub", "orders")
	s, err := b.b.Attach(t.Context(), backend.Config{Topic: "orders", Group: "billing", Lease: time.Hour})
	require.NoError(t, err)
	_, err = s.Receive(t.Context(), 1, 1<<20)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	found, _ := b.patient().finds(2, "--late", "1ms")
	require.Contains(t, found["group-died"].Text, "holds 1 event")
}

// A file adds the groups that must exist. The command stores nothing of the file.
func TestDoctorWithAFile(t *testing.T) {
	b := newBench(t)
	file := filepath.Join(t.TempDir(), "eventbus.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`bus:
  url: "test:"
  subscriptions:
    billing:
      topic: orders
      group: billing
    all:
      topic: "shop.*"
      group: audit
  schedules:
    nightly:
      topic: orders
      cron: "0 3 * * *"
`), 0o600))
	p := patient{t, func(args ...string) result { return b.ends(append(args, "--config", file)...) }}
	found, s := p.finds(1)
	require.Equal(t, []string{"orders", "billing"}, []string{found["group-missing"].Topic, found["group-missing"].Group})
	require.Contains(t, strings.Join(s.NotLookedAt, "\n"), "whether the groups of the subscription all exist")
	require.Empty(t, b.ok("", "topics").stdout)
	b.ok("", "groups", "create", "orders", "billing")
	found, _ = p.finds(0)
	require.Empty(t, found)
}

// Exit codes are for monitoring: a command that could not check never says that all is well, or
// that events wait.
func TestDoctorExitCodes(t *testing.T) {
	b := newBench(t)
	for want, args := range map[string][]string{
		"unknown flag: --nonsense":             {"--nonsense"},
		`unexpected argument "orders"`:         {"orders"},
		"--for must be positive":               {"--for", "0s"},
		"--letters must be positive":           {"--letters", "0"},
		"--ignore is empty":                    {"--ignore", ""},
		"give --url or --config, not both":     {"--config", "x.yaml"},
		`invalid argument "x" for "--letters"`: {"--letters", "x"},
	} {
		r := b.run("", append([]string{"doctor"}, args...)...)
		require.Equal(t, 3, r.code, want)
		require.Contains(t, r.stderr, "eventbus: doctor: ")
		require.Contains(t, r.stderr, want)
	}
	r := patientAt(t, "redis://127.0.0.1:1").run("doctor", "--connect-timeout", "1s")
	require.Equal(t, 3, r.code, r.stderr)
	require.Empty(t, r.stdout)

	b.ok(numbered(1), "pub", "orders")
	for _, ignore := range []string{"topic-unread", "topic-unread:orders", "topic-unread:orders/"} {
		_, s := b.patient().finds(0, "--ignore", ignore)
		require.Equal(t, 1, s.Ignored)
	}
	b.patient().finds(1, "--ignore", "topic-unread:order")
	r = b.run("", "doctor", "--for", "1ms")
	require.Regexp(t, `^WARNING topic-unread: orders
  The topic has events, the oldest of which is \d+s old, but no group that gets them\.
  remedy: start the program of a group, or delete the topic
    eventbus topics delete orders --yes
0 errors, 1 warning, 0 notes; looked at 1 topic and 0 groups for \d+ s
not looked at: .*
not looked at: .*
$`, r.stdout)
	require.Equal(t, "eventbus: doctor: 1 warning\n", r.stderr)
}

// A name of another program cannot run anything in a shell.
func TestDoctorQuotesCommands(t *testing.T) {
	for _, args := range [][]string{{"a", "b c"}, {"$(touch /tmp/x)", "`id`"}, {"it's", ""}, {"a\nb", "*"}, {"orders.partition-1", "é"}} {
		out, err := exec.Command("sh", "-c", `printf '%s\0' `+shellLine(args)).Output()
		require.NoError(t, err)
		require.Equal(t, strings.Join(args, "\x00")+"\x00", string(out))
	}
	require.Equal(t, "eventbus groups delete orders billing --yes", shellLine([]string{"eventbus", "groups", "delete", "orders", "billing", "--yes"}))
}
