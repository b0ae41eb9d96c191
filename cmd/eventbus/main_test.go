package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// command runs a command line and returns its exit code and output.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), drivers(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "events.ndjson")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestErrorsAreOneLine(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown command", []string{"dmo"}, `eventbus: unknown command "dmo" for "eventbus"`},
		{"unknown command below one", []string{"dlq", "purg", "orders.dlq"}, `eventbus: unknown command "purg" for "eventbus dlq"`},
		{"unknown flag", []string{"demo", "--inptu", "x"}, "eventbus: unknown flag: --inptu"},
		{"argument", []string{"version", "now"}, `eventbus: unknown command "now" for "eventbus version"`},
		{"no file", []string{"demo", "--input", "/nowhere/at-all"}, "eventbus: demo: open /nowhere/at-all: no such file"},
		{"bad line", []string{"demo", "--input", file(t, "{}\n{\"kye\":1}\n")}, `events.ndjson:2: not an event as JSON: unknown field "kye"`},
		{"unknown scheme", []string{"demo", "--url", "kafka://u:secret@h"}, `has the scheme "kafka", which no driver given to Open serves`},
		{"URL as a flag", []string{"ping", "--connect-timeout=redis://u:secret@h"}, `invalid argument "URL"`},
		{"URL of other letters", []string{"ping", "--connect-timeout", "redis://u:\"ß\tsecret@h"}, `time: invalid duration "URL"`},
		{"pub to memory", []string{"pub", "orders", "--url", "mem:", "--data", "x"}, "pub: mem: would forget the events"},
		{"typing error", []string{"demo", "--url", "meme:"}, "did you mean mem:?"},
		{"unknown parameter", []string{"demo", "--url", "mem:?max_mesages=3"}, `did you mean "max_messages"?`},
	} {
		t.Run(row.name, func(t *testing.T) {
			code, stdout, stderr := command(t, row.args...)
			require.Equal(t, 1, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, row.want)
			require.True(t, strings.HasPrefix(stderr, "eventbus: "), stderr)
			require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
			require.NotContains(t, stderr, "secret")
		})
	}
}

func TestVersion(t *testing.T) {
	code, stdout, _ := command(t, "version")
	require.Zero(t, code)
	require.True(t, strings.HasPrefix(stdout, "eventbus "), stdout)
	require.Contains(t, stdout, runtime.Version())

	code, stdout, _ = command(t, "version", "--json")
	require.Zero(t, code)
	var v version
	require.NoError(t, json.Unmarshal([]byte(stdout), &v))
	require.Equal(t, runtime.Version(), v.Go)
}

func TestVersionOfACheckout(t *testing.T) {
	v := versionOf(&debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.1.0"},
		Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}},
	})
	require.Equal(t, "eventbus v0.1.0 abc with changes go1.26.0 "+runtime.GOOS+"/"+runtime.GOARCH, v.String())
}
