package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

// One line of the file chooses the backend, and the program behaves the same.
func TestSwap(t *testing.T) {
	for name, url := range map[string]func(t *testing.T) string{
		"memory": func(*testing.T) string { return "mem:" },
		"bolt":   func(t *testing.T) string { return "bolt:" + filepath.ToSlash(filepath.Join(t.TempDir(), "swap.db")) },
		"nats":   func(t *testing.T) string { return natstest.Start(t).URL() },
		"redis": func(t *testing.T) string {
			return fmt.Sprintf("%s?namespace=swap-%d", redistest.Shared(t).URL(), time.Now().UnixNano())
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out bytes.Buffer
			require.NoError(t, run(ctx, withURL(t, url(t)), 100, &out))
			require.Equal(t, "100 orders: 96 billed, 4 dead letters, 32 retries\n", out.String())
		})
	}
}

var urlLine = regexp.MustCompile(`(?m)^  url: .*$`)

// withURL writes the example's file with another URL.
func withURL(t *testing.T, url string) string {
	t.Helper()
	text, err := os.ReadFile("eventbus.yaml")
	require.NoError(t, err)
	changed := urlLine.ReplaceAllLiteralString(string(text), fmt.Sprintf("  url: %q", url))
	was, is := strings.Split(string(text), "\n"), strings.Split(changed, "\n")
	require.Len(t, is, len(was))
	differ := 0
	for i := range is {
		if is[i] != was[i] {
			differ++
		}
	}
	require.LessOrEqual(t, differ, 1)
	file := filepath.Join(t.TempDir(), "eventbus.yaml")
	require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
	return file
}

// An error ends the program with its reason.
func TestSwapEnds(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), "nowhere.yaml", 1, nil), "nowhere.yaml: no such file or directory")

	file := filepath.Join(t.TempDir(), "f.yaml")
	require.NoError(t, os.WriteFile(file, []byte("bus:\n  url: 'mem:'\n  subscriptions: {billing: {topic: shop.orders, group: b}}\n"), 0o600))
	require.ErrorContains(t, run(t.Context(), file, 1, nil), `f.yaml: has no subscription "lost"`)

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	text, err := os.ReadFile("eventbus.yaml")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(text, []byte("20ms..200ms"), []byte("1h..1h"), 1), 0o600))
	err = run(ctx, file, 25, nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "gave up: 25 orders: ")
}
