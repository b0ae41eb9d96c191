package config_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/config"
	"github.com/seed41896749/eventbus/inmemory"
)

// head begins the files of most rows below.
const head = "bus:\n  url: \"mem:\"\n"

// sub is a file with one subscription, whose keys begin in line 5, column 7.
func sub(keys ...string) string {
	return head + "  subscriptions:\n    s:\n      topic: t\n      group: g\n      " + strings.Join(keys, "\n      ")
}

func TestErrors(t *testing.T) {
	const s = "bus.subscriptions.s"
	for _, c := range []struct{ file, want string }{
		// The form of the file.
		{"", `f:1:1: is empty; it begins with "bus:"`},
		{"# nothing\n", `f:1:1: is empty; it begins with "bus:"`},
		{"~", `f:1:1: is empty; it begins with "bus:"`},
		{"bus", `f:1:1: is a text; it must have keys below it`},
		{"- bus", `f:1:1: is a list; it must have keys below it`},
		{"service: x", "f:1:1: bus is missing\nf:1:1: unknown key \"service\""},
		{"bus:", `f:1:5: bus: has no value; leave the key out, or give it keys`},
		{"bus: {url: ", "f:2:1: not YAML: did not find expected node content"},
		{"bus:\n\turl: x", "f:2:1: not YAML: found character that cannot start any token"},
		{"bus:\n  url: mem:\n", `f:2:11: not YAML: mapping values are not allowed in this context; a text that ends with a colon, or has one and a space in it, is written in quotes, such as "mem:"`},
		{"bus: *hunter2", "f:1:6: an alias (*) has no anchor (&) before it"},
		{"bus: \xff", "f:1:1: not YAML in UTF-8"},
		{head + "---\nx: 1\n", "f:3:1: is a second document; one file is one bus"},
		{head + "  url: x\n", `f:3:3: the key "url" is here a second time; the first is at line 2`},
		{head + "  ? [a]\n  : b\n", "f:3:5: a key must be a word"},
		{head + "  <<: 5\n", `f:3:7: "<<" takes a mapping, such as *name`},
		{"bus: &b\n  url: \"mem:\"\n  topics: *b\n", "f:1:1: is nested too deep, or its aliases make it too large"},
		{strings.Repeat(" ", 1<<20+1), "f:1:1: is larger than 1 MiB"},

		// Keys.
		{head + "  drain: 5s", `f:3:3: bus: unknown key "drain"; did you mean drain_timeout?`},
		{head + "  servce: x", `f:3:3: bus: unknown key "servce"; did you mean service?`},
		{head + "  redis://u:hunter2@h: x", `f:3:3: bus: an unknown key that is not shown, as it may be part of a secret`},
		{"bus:\n  service: x", "f:1:1: bus: url, or url_file, is missing"},
		{head + "  url_file: /x", "f:3:3: bus: url and url_file are both given"},
		{sub("conurrency: 3"), "f:7:7: " + s + `: unknown key "conurrency"; did you mean concurrency?`},
		{sub("retry:", "  atempts: 3"), "f:8:9: " + s + `.retry: unknown key "atempts"; did you mean attempts?`},
		{head + "  subscriptions:\n    s: {group: g}", "f:4:5: " + s + ": topic, or topics, is missing"},
		{head + "  subscriptions:\n    s: {topics: [t], topic: t, group: g}", "f:4:9: " + s + ": topic and topics are both given"},
		{head + "  subscriptions:\n    s: {topics: t, group: g}", "f:4:17: " + s + ".topics: is no list with values, such as [shop.orders, shop.refunds.*]"},
		{head + "  subscriptions:\n    s: {topics: [t, t.>, t], group: g}", "f:4:17: " + s + `.topics: has "t" twice`},
		{head + "  subscriptions:\n    a/b: {topic: t, group: g}", "f:4:5: bus.subscriptions: the key \"a/b\": a name has letters, digits, '_' and '-', joined by '.', and at most 200 bytes"},
		{head + "  subscriptions:\n    s: t", "f:4:8: " + s + ": is a text; it must have keys below it"},
		{head + "  subscriptions: [s]", "f:3:18: bus.subscriptions: is a list; it must have keys below it"},
		{head + "  topics: {t: {replicas: [1]}}", "f:3:26: bus.topics.t.replicas: is a list; it must be: setting of the driver"},
		{head + "  topics: {t: 3}", "f:3:15: bus.topics.t: is a number; it must have keys below it"},

		// Texts.
		{head + "  service:", "f:3:11: bus.service: has no value; leave the key out for its default"},
		{head + "  service: 12", `f:3:12: bus.service: "12": is a number; it must be: text (write it in quotes)`},
		{head + "  service: [x]", "f:3:12: bus.service: is a list; it must be: text"},
		{head + "  service: {x: y}", "f:3:12: bus.service: is a mapping; it must be: text"},
		{head + "  service: !secret x", `f:3:12: bus.service: is of a type of its own; it must be: text`},
		{head + "  service: \"a\\nb\"", "f:3:12: bus.service: has a control character, or is not UTF-8"},
		{head + "  service: " + strings.Repeat("x", 513), "f:3:12: bus.service: longer than 512 bytes"},
		{head + "  service: ${NONE}", "f:3:12: bus.service: the variable NONE of the environment is not set"},
		{head + "  service: a$b", "f:3:12: bus.service: a dollar begins ${VARIABLE}; a dollar itself is $$"},
		{head + "  service: ${}", "f:3:12: bus.service: a dollar begins ${VARIABLE}; a dollar itself is $$"},
		{sub("dead_letter: a b"), "f:7:20: " + s + `.dead_letter: "a b": a name has letters, digits, '_' and '-', joined by '.', and at most 200 bytes; or it is (discard)`},
		{head + "  subscriptions:\n    s: {topic: 2024-01-01, group: g}", "f:4:16: " + s + `.topic: "2024-01-01": is a date; it must be: name or pattern (write it in quotes)`},
		{head + "  subscriptions:\n    s: {topic: t, group: true}", "f:4:26: " + s + `.group: "true": is true or false; it must be: name or (each) (write it in quotes)`},
		{sub("ack: on-succes"), "f:7:12: " + s + `.ack: "on-succes": not one of on-success, on-receive; did you mean on-success?`},
		{sub("order: by-name"), "f:7:14: " + s + `.order: "by-name": not one of by-key, none, total`},
		{sub("start: lates"), "f:7:14: " + s + `.start: "lates": not one of earliest, latest; did you mean latest? Or: after POSITION, a time such as 2026-11-26T08:00:00Z, or 2h ago`},
		{sub("start: 17"), "f:7:14: " + s + `.start: "17": is a number; it must be: earliest, latest, after POSITION, a time, or 2h ago (write it in quotes)`},

		// The URL, which no error shows.
		{"bus:\n  url: hunter2", "f:2:8: bus.url: a URL has a scheme, such as mem: or redis://host:6379"},
		{"bus:\n  url: redis://u:hunter2%@h", "f:2:8: bus.url: not a URL (special characters in a password are escaped, such as %40 for @, %2F for /, %3F for ? and %23 for #)"},
		{"bus:\n  url: ''", "f:2:8: bus.url: empty"},
		{"bus:\n  url: 17", "f:2:8: bus.url: is a number; it must be: URL (write it in quotes)"},
		{"bus:\n  url: {hunter2: x}", "f:2:8: bus.url: is a mapping; it must be: URL"},
		{"bus:\n  url: ${NONE}", "f:2:8: bus.url: the variable NONE of the environment is not set"},
		{"bus:\n  url: ${WRONG}", "f:2:8: bus.url: a URL has a scheme, such as mem: or redis://host:6379"},
		{"bus:\n  url_file: /nowhere/at-all", `f:2:13: bus.url_file: "/nowhere/at-all": no such file or directory`},
		{"bus:\n  url_file: redis://u:hunter2@h", `f:2:13: bus.url_file: no such file or directory`},

		// Numbers.
		{head + "  max_pending: many", `f:3:16: bus.max_pending: "many": not a whole number, such as 10000`},
		{head + "  max_pending: '16'", `f:3:16: bus.max_pending: "16": is a text; it must be: whole number (write it without quotes)`},
		{head + "  max_pending: 1.5", `f:3:16: bus.max_pending: "1.5": not a whole number, such as 10000`},
		{head + "  max_pending: 0x10", `f:3:16: bus.max_pending: "0x10": not a whole number, such as 10000`},
		{head + "  max_pending: 010", `f:3:16: bus.max_pending: "010": not a whole number, such as 10000`},
		{head + "  max_pending: 0", `f:3:16: bus.max_pending: "0": less than 1`},
		{head + "  max_pending: -3", `f:3:16: bus.max_pending: "-3": less than 1`},
		{head + "  max_pending: 99999999999", `f:3:16: bus.max_pending: "99999999999": more than 2147483647`},
		{head + "  max_pending: 99999999999999999999", `f:3:16: bus.max_pending: "99999999999999999999": more than 2147483647`},
		{head + "  max_pending: ${WRONG}", `f:3:16: bus.max_pending: "${WRONG}", filled in: not a whole number, such as 10000`},
		{head + "  max_pending: redis://u:hunter2@h", `f:3:16: bus.max_pending: not a whole number, such as 10000`},
		{sub("retry:", "  attempts: 0"), "f:8:19: " + s + `.retry.attempts: "0": less than 1; for none write unlimited`},
		{sub("retry:", "  attempts: none"), "f:8:19: " + s + `.retry.attempts: "none": not a whole number or unlimited, such as 12`},
		{sub("retry:", "  jitter: 20%"), "f:8:17: " + s + `.retry.jitter: "20%": not a number from 0 to 1, such as 0.2`},
		{sub("retry:", "  jitter: 1.5"), "f:8:17: " + s + `.retry.jitter: "1.5": more than 1`},
		{sub("retry:", "  jitter: .nan"), "f:8:17: " + s + `.retry.jitter: ".nan": not a number from 0 to 1, such as 0.2`},
		{head + "  dedup: yes", `f:3:10: bus.dedup: "yes": neither true nor false`},
		{head + "  dedup: 'true'", `f:3:10: bus.dedup: "true": is a text; it must be: true or false (write it without quotes)`},

		// Durations.
		{sub(`lease: "30"`), "f:7:14: " + s + `.lease: "30": missing unit, such as 30s`},
		{sub("lease: 30"), "f:7:14: " + s + `.lease: "30": missing unit, such as 30s`},
		{sub("lease: 0"), "f:7:14: " + s + `.lease: "0": less than 100ms`},
		{sub("lease: 99ms"), "f:7:14: " + s + `.lease: "99ms": less than 100ms`},
		{sub("lease: -1s"), "f:7:14: " + s + `.lease: "-1s": less than 100ms`},
		{sub("lease: none"), "f:7:14: " + s + `.lease: "none": not a duration, such as 30s, 1m30s or 250ms`},
		{sub("lease: 1d"), "f:7:14: " + s + `.lease: "1d": unknown unit "d"; there are h, m, s, ms, us and ns, as in 1m30s`},
		{sub("lease: 30 sec"), "f:7:14: " + s + `.lease: "30 sec": unknown unit "sec"; there are h, m, s, ms, us and ns, as in 1m30s`},
		{sub("lease: 9999999999h"), "f:7:14: " + s + `.lease: "9999999999h": more than 292 years`},
		{sub("lease: [1s]"), "f:7:14: " + s + `.lease: is a list; it must be: duration`},
		{sub("timeout: 0s"), "f:7:16: " + s + `.timeout: "0s": less than 1ms; for none write none`},
		{sub("timeout: soon"), "f:7:16: " + s + `.timeout: "soon": not a duration or none, such as 30s, 1m30s or 250ms`},
		{sub("retry: {backoff: 1s}"), "f:7:24: " + s + `.retry.backoff: "1s": not two durations, the first delay and the longest, such as 200ms..1m`},
		{sub("retry: {backoff: 1..10}"), "f:7:24: " + s + `.retry.backoff: "1..10": the first delay: missing unit, such as 1s`},
		{sub("retry: {backoff: 1s..10}"), "f:7:24: " + s + `.retry.backoff: "1s..10": the longest delay: missing unit, such as 10s`},
		{sub("retry: {backoff: 1m..1s}"), "f:7:24: " + s + `.retry.backoff: "1m..1s": the longest delay is less than the first`},

		// Sizes.
		{sub("max_bytes: 1024"), "f:7:18: " + s + `.max_bytes: "1024": missing unit, such as 64MiB; bytes are 1024B`},
		{sub("max_bytes: 64mib"), "f:7:18: " + s + `.max_bytes: "64mib": unknown unit; there are B, KB, MB, GB, KiB, MiB and GiB; did you mean MiB?`},
		{sub("max_bytes: 64M"), "f:7:18: " + s + `.max_bytes: "64M": unknown unit; there are B, KB, MB, GB, KiB, MiB and GiB; did you mean MB?`},
		{sub("max_bytes: 1.5GiB"), "f:7:18: " + s + `.max_bytes: "1.5GiB": not a size or none, a whole number and a unit, such as 64MiB`},
		{sub("max_bytes: 0MB"), "f:7:18: " + s + `.max_bytes: "0MB": less than 1B; for none write none`},
		{sub("max_bytes: 2000GiB"), "f:7:18: " + s + `.max_bytes: "2000GiB": more than 1024GiB`},
		{sub("max_bytes: 99999999999999999999B"), "f:7:18: " + s + `.max_bytes: "99999999999999999999B": more than 1024GiB`},
		{head + "  max_pending_bytes: none", `f:3:22: bus.max_pending_bytes: "none": not a size, a whole number and a unit, such as 64MiB`},

		{sub("limits: {rate_of: '${WRONG}'}"), "f:7:25: " + s + ".limits.rate_of: is no subscription with a rate"},

		// Contradictions that the bus detects.
		{sub("max_in_flight: 4", "concurrency: 8"), "f:7:22: " + s + ".max_in_flight: is 4, less than concurrency, 8"},
		{sub("order: total", "concurrency: 2"), "f:8:20: " + s + ".concurrency: is 2, but total order needs 1"},
		{sub("dead_letter: t"), "f:7:20: " + s + ".dead_letter: is the topic itself"},
		{head + "  subscriptions:\n    s: {topic: t.dlq, group: g}", "f:4:5: " + s + ".dead_letter: is required, because t.dlq is itself a dead-letter topic"},
	} {
		t.Run(c.want, func(t *testing.T) {
			got, err := config.Parse("f", []byte(c.file), []string{"WRONG=hunter2"})
			require.EqualError(t, err, c.want, c.file)
			require.Nil(t, got)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

// All errors are reported together in the order of the file.
func TestErrorsComeTogether(t *testing.T) {
	_, err := config.Parse("f", []byte("bus:\n  subscriptions:\n    s: {lease: 3, topic: t}\n  servce: x\n  max_pending: 0\n"), nil)
	require.EqualError(t, err, strings.Join([]string{
		`f:1:1: bus: url, or url_file, is missing`,
		`f:3:5: bus.subscriptions.s: group is missing`,
		`f:3:16: bus.subscriptions.s.lease: "3": missing unit, such as 3s`,
		`f:4:3: bus: unknown key "servce"; did you mean service?`,
		`f:5:16: bus.max_pending: "0": less than 1`,
	}, "\n"))
	var e *config.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, config.Error{File: "f", Line: 1, Column: 1, Path: "bus", Reason: "url, or url_file, is missing"}, *e)
}

// A mistake in a subscription hides no mistake of another one whose name begins with its
// name, and makes no error of one that shares its rate.
func TestMistakesAreApart(t *testing.T) {
	_, err := config.Parse("f", []byte(head+`  subscriptions:
    a: {topic: t, group: g, concurrency: 4, max_in_flight: 2}
    a.b: {topic: t, group: h, limits: {rate: 100}}
    c: {topic: t, group: i, limits: {rate_of: a.b}}
`), nil)
	require.EqualError(t, err, strings.Join([]string{
		`f:4:60: bus.subscriptions.a.max_in_flight: is 2, less than concurrency, 4`,
		`f:5:46: bus.subscriptions.a.b.limits.rate: "100": not a number of events in a time, such as 100/s, 30/m or 5/h`,
	}, "\n"))
}

// An error about a setting of a topic, or about a rule, names the place of its key, even if the
// value comes from a variable.
func TestPlacesOfSettingsAndRules(t *testing.T) {
	c, err := config.Parse("f", []byte("bus:\n  url: nats://x:4222\n  topics:\n    shop: {replicas: '${N}', max_bytes: 1GiB}\n"), []string{"N=many"})
	require.NoError(t, err)
	require.ErrorContains(t, c.Check(t.Context(), drivers()...), "f:4:22: bus.topics.shop.replicas: ")

	c, err = config.Parse("f", []byte(sub("retry:", "  rules:", "    bussy: {attempts: 1}")), nil)
	require.NoError(t, err)
	bus, err := c.Open(t.Context(), nil, inmemory.Driver{})
	require.NoError(t, err)
	defer func() { require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context()))) }()
	_, err = c.Subscribe(t.Context(), bus, "s", func(context.Context, *eventbus.Delivery) error { return nil })
	require.ErrorContains(t, err, "f:8:9: bus.subscriptions.s.retry.rules: is bussy, which is not one of Options.ErrorClasses")
}

// A secret is read from a file beside this one, without the newline that editors add. It
// is never shown.
func TestSecretFile(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{
		"mem:":                       "",
		"mem:\n":                     "",
		"mem:\r\n":                   "",
		"mem:\n\n":                   `"secret": the content of the file: not a URL`,
		"hunter2":                    `"secret": the content of the file: a URL has a scheme`,
		"":                           `"secret": the content of the file: empty`,
		string(make([]byte, 65<<10)): `"secret": larger than 65536 bytes`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte(content), 0o600))
		c, err := config.Parse(filepath.Join(dir, "f"), []byte("bus:\n  url_file: secret"), nil)
		if want != "" {
			require.ErrorContains(t, err, "f:2:13: bus.url_file: "+want)
			require.NotContains(t, err.Error(), "hunter2")
			continue
		}
		require.NoError(t, err)
		bus, err := c.Open(t.Context(), nil, inmemory.Driver{})
		require.NoError(t, err)
		require.NoError(t, bus.Shutdown(t.Context()))
	}
}

// A password given as the URL is not shown as an unknown scheme.
func TestNoSchemeIsShownThatMayBeASecret(t *testing.T) {
	c, err := config.Parse("f", []byte("bus:\n  url: hunter2:x"), nil)
	require.NoError(t, err)
	require.EqualError(t, c.Check(t.Context(), drivers()...), "f:2:8: bus.url: has a scheme, not shown as it may be part of a secret, that no driver serves; "+
		"there are mem, bolt, redis, rediss, unix, redis+sentinel, redis+cluster, nats, tls")
	require.ErrorIs(t, c.Check(t.Context(), drivers()...), errors.ErrUnsupported)
}

// In YAML a text with a final colon needs quotes; mem:// does not.
func TestMemoryWithoutQuotes(t *testing.T) {
	c, err := config.Parse("f", []byte("bus:\n  url: mem://"), nil)
	require.NoError(t, err)
	bus, err := c.Open(t.Context(), nil, inmemory.Driver{})
	require.NoError(t, err)
	require.NoError(t, bus.Shutdown(t.Context()))
}

// No form of printing shows the URL.
func TestSecretIsNotPrinted(t *testing.T) {
	c, err := config.Parse("dir/f.yaml", []byte("bus:\n  url: redis://u:${PW}@h\n  subscriptions: {s: {topic: t, group: g}}"), []string{"PW=hunter2"})
	require.NoError(t, err)
	require.Equal(t, "config f.yaml: 1 subscriptions", c.String())
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		text := fmt.Sprintf(verb, c)
		require.NotContains(t, text, "hunter2")
		require.NotContains(t, text, fmt.Sprintf("%x", "hunter2"))
	}
	require.NotContains(t, c.Describe(), "hunter2")
}

// A variable fills in its part of a value, even if it is empty. $$ is a dollar sign.
func TestEnvironment(t *testing.T) {
	c, err := config.Parse("f", []byte("bus:\n  url: ${S}://${NONE}\n  service: ${A}-${B}-$$A${NONE}\n  max_pending: ${N}\n"),
		[]string{"S=mem", "A=a", "B=$A=${N}", "N=7", "NONE=", "=C:=x", "x"})
	require.NoError(t, err)
	require.Equal(t, "a-$A=${N}-$A", c.Options().Service, "the value of a variable is not filled in")
	require.Equal(t, 7, c.Options().MaxPending)
	require.NoError(t, c.Check(t.Context(), inmemory.Driver{}))
}
