package main

import (
	"bytes"
	"flag"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/outbox"
)

func TestSchema(t *testing.T) {
	for _, dialect := range []outbox.Dialect{outbox.Postgres, outbox.MySQL, outbox.SQLite} {
		var out bytes.Buffer
		require.NoError(t, run([]string{"schema", "--table", "shop.events", string(dialect)}, &out, io.Discard))
		want, err := outbox.Schema(dialect, "shop.events")
		require.NoError(t, err)
		require.Equal(t, want, out.String())
	}
}

func TestUsage(t *testing.T) {
	var errs bytes.Buffer
	for want, args := range map[string][]string{
		"the command is schema":       {},
		"the command is schema ":      {"scheme"},
		"schema needs one dialect":    {"schema"},
		`is "oracle"`:                 {"schema", "oracle"},
		"Options.Table":               {"schema", "-table", "x;y", "sqlite"},
		"flag provided but not known": {"schema", "-x"},
	} {
		err := run(args, io.Discard, &errs)
		require.Error(t, err, want)
	}
	require.ErrorIs(t, run([]string{"--help"}, io.Discard, &errs), flag.ErrHelp)
	require.Contains(t, errs.String(), "usage: outbox schema")
}
