package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func file(t *testing.T, name string) string {
	text, err := os.ReadFile("../../../" + name)
	require.NoError(t, err)
	return string(text)
}

// The table of docs/promises.md matches the outcomes of the tests and the drivers' declarations.
func TestPageIsUpToDate(t *testing.T) {
	page := file(t, pageFile)
	next, err := update(page, file(t, conformanceFile))
	require.NoError(t, err)
	_, was, _ := strings.Cut(page, begin)
	was, _, _ = strings.Cut(was, end)
	_, is, _ := strings.Cut(next, begin)
	is, _, _ = strings.Cut(is, end)
	require.Equal(t, is, was, "docs/promises.md is stale: go run ./internal/tools/promises")
}

// The cell of a promise shows the worst outcome of its tests.
func TestCells(t *testing.T) {
	const head = "| test | promise | nats |\n|--|--|--|\n"
	p := promise{"it holds", []string{"A1 a", "B2 b"}}
	for _, c := range []struct{ a, b, want string }{
		{"pass", "pass", "yes"},
		{"pass", "not claimed", "yes"},
		{"not claimed", "not claimed", "–"},
		{"pass", "weaker", "weaker: B2"},
		{"weaker", "weaker", "weaker: A1 B2"},
		{"weaker", "fail", "**no**"},
		{"pass", "missing", "**no**"},
		{"pass", "memory", "**no**"}, // it did not run on this backend
	} {
		r, err := read("- B2 b on nats is weaker: a reason\n" + head + "| A1 a | x \\| y | " + c.a + " |\n| B2 b | z | " + c.b + " |\n")
		require.NoError(t, err)
		cell, why, err := p.on(r, "nats")
		require.NoError(t, err)
		require.Equal(t, c.want, cell)
		if strings.Contains(c.want, "weaker: B2") {
			require.Equal(t, []string{"B2 on NATS: a reason"}, why)
		}
	}
	r, err := read(head + "| A1 a | x | pass |\n\n| test | promise | nats-failover |\n|--|--|--|\n| A1 a | x | fail |\n")
	require.NoError(t, err)
	require.Equal(t, []string{"nats"}, r.backends)
	require.Equal(t, map[string]string{"nats": "pass", "nats-failover": "fail"}, r.tests["A1 a"])
	r, err = read(head + "| A1 a | x | pass |\n")
	require.NoError(t, err)
	_, _, err = p.on(r, "nats")
	require.EqualError(t, err, `docs/CONFORMANCE.md: no test "B2 b", which shows: it holds`)
	_, err = read("nothing")
	require.Error(t, err)
}
