package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// order holds the columns of the table, and names their headings.
var (
	order = []string{"inmemory", "bolt", "redis", "redis-cluster", "nats", "nats-cluster"}
	names = map[string]string{
		"inmemory": "memory", "bolt": "one file", "redis": "Redis", "redis-cluster": "Redis Cluster", "nats": "NATS", "nats-cluster": "NATS cluster",
	}
)

// A promise is a row of the table that conformance tests show.
type promise struct {
	text  string
	tests []string
}

var promises = []promise{
	{"a stored event outlives the program", []string{"D07 position-outlives-process", "T06 delayer-dies"}},
	{"… and a crash of the broker", []string{"P02 ack-means-stored", "B.F01 kill-loop"}},
	{"each group gets each event until it has settled it", []string{"B.D01 at-least-once", "C20 abandoned-comes-back", "L05 dead-member", "M01 safe-trim"}},
	{"with Keep, a settled event stays for groups that come later", []string{"C89 keep", "C91 keep-unsettled", "B.G06 options-topics"}},
	{"… and for a replay from a time", []string{"C95 start-at", "C97 reset-at", "C98 read-at"}},
	{"with EachInstance, every instance gets every event and leaves no group behind", []string{"B.G01 each-instance", "B.G04 each-ends", "G03 ephemeral-dead"}},
	{"a group that an operator has paused stays paused in every process", []string{"G10 pause", "G14 pause-reset", "B.G05 paused-by-operator"}},
	{"one subscription reads many topics, including those that appear later", []string{"B.M01 many-topics", "B.M05 topic-found"}},
	{"a settled event is not redelivered", []string{"D10 ack-is-forever", "B.D10 no-redelivery-after-ack"}},
	{"… nor after a crash of the broker", []string{"D11 ack-then-crash"}},
	{"failed runs are numbered 1, 2, 3, …", []string{"D08 attempt-sequence", "B.D08 attempt-sequence"}},
	{"… and no number is too high after a crash of the broker", []string{"D09 attempt-after-crash"}},
	{"a redriven event goes to the group that failed, once", []string{"B.Q11 redrive-one-group", "B.Q12 redrive-killed"}},
	{"an operator can dead-letter one event of a group, whoever holds it, and the group continues", []string{"C99 settle-held", "C100 settle-delayed", "B.Q24 bury"}},
	{"no event is redelivered before its delay has passed", []string{"T01 delay", "T03 long-delay", "B.T01 retry-not-early"}},
	{"… nor after a restart or crash of the broker", []string{"T05 delay-over-restart"}},
	{"within one member, events of a key stay in order, retries included", []string{"P12 publisher-order", "B.O01 key-order", "B.O02 key-order-retry"}},
	{"in a topic with partitions, in the whole group", []string{"B.N01 partition-order", "B.N02 partition-order-after-faults", "B.N03 partition-one-owner"}},
	{"a member whose lease has expired can no longer extend or delay its event", []string{"C29 delay-fenced", "L04 extend-fenced", "L03 frozen-member"}},
}

const begin, end = "<!-- promises -->\n", "<!-- /promises -->"

// update returns the text of the page with a new table, from the text of CONFORMANCE.md.
func update(page, conformance string) (string, error) {
	r, err := read(conformance)
	if err != nil {
		return "", fmt.Errorf("%s: %w", conformanceFile, err)
	}
	text, err := table(r)
	if err != nil {
		return "", err
	}
	head, rest, ok := strings.Cut(page, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("%s: the table between %s and %s is missing", pageFile, strings.TrimSpace(begin), end)
	}
	return head + begin + text + end + tail, nil
}

func table(r *report) (string, error) {
	declared, err := families()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| promise | shown by |")
	for _, name := range r.backends {
		fmt.Fprintf(&b, " %s |", names[name])
	}
	b.WriteString("\n|--|--|" + strings.Repeat("--|", len(r.backends)) + "\n")
	var notes []string
	for _, p := range promises {
		fmt.Fprintf(&b, "| %s | %s |", p.text, ids(p.tests))
		for _, name := range r.backends {
			cell, why, err := p.on(r, name)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, " %s |", cell)
			notes = append(notes, why...)
		}
		b.WriteByte('\n')
	}
	for _, d := range declarations {
		fmt.Fprintf(&b, "| %s | the driver |", d.what)
		for _, name := range r.backends {
			fmt.Fprintf(&b, " %s |", d.of(declared[name]))
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	for _, n := range slices.Compact(notes) {
		b.WriteString("- " + n + "\n")
	}
	return b.String(), nil
}

// on returns the cell of a promise on a backend: the worst outcome of the tests that the
// backend claims. why has the reasons of weaker outcomes.
func (p promise) on(r *report, backend string) (cell string, why []string, err error) {
	cell = "–"
	var weaker []string
	for _, test := range p.tests {
		results, known := r.tests[test]
		if !known {
			return "", nil, fmt.Errorf("%s: no test %q, which shows: %s", conformanceFile, test, p.text)
		}
		switch results[backend] {
		case "pass":
			if cell == "–" {
				cell = "yes"
			}
		case "weaker":
			weaker = append(weaker, test)
			why = append(why, fmt.Sprintf("%s on %s: %s", ids([]string{test}), names[backend], r.why[test+" on "+backend]))
		case "not claimed":
		default:
			return "**no**", nil, nil
		}
	}
	if len(weaker) > 0 {
		cell = "weaker: " + ids(weaker)
	}
	return cell, why, nil
}

// ids returns the IDs of tests.
func ids(tests []string) string {
	var all []string
	for _, test := range tests {
		id, _, _ := strings.Cut(test, " ")
		all = append(all, id)
	}
	return strings.Join(all, " ")
}

// short returns a duration without trailing zero units.
func short(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}
