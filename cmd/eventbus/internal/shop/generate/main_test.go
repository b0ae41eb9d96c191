package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheCommittedEventsAreTheGenerated(t *testing.T) {
	name := filepath.Join(t.TempDir(), "events.ndjson")
	require.NoError(t, write(name))
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	want, err := os.ReadFile("../events.ndjson")
	require.NoError(t, err)
	require.True(t, string(got) == string(want), "run go generate ./cmd/eventbus/internal/shop")
}
