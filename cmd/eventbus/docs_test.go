package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/cmd/eventbus/internal/ndjson"
)

// The program accepts every shell line of docs/cli.md, and the document shows every
// command.
func TestTheDocsShowRealCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	shown := map[string]bool{}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			for _, part := range strings.Split(line, " | ") {
				words := words(part)
				if len(words) == 0 || words[0] != "eventbus" {
					continue
				}
				cmd, rest, err := newRoot(drivers()).Find(words[1:])
				require.NoError(t, err, part)
				require.NoError(t, cmd.ParseFlags(rest), part)
				require.NoError(t, cmd.ValidateRequiredFlags(), part)
				require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), part)
				for ; cmd.HasParent(); cmd = cmd.Parent() {
					shown[cmd.Name()] = true
				}
			}
		}
	}
	for _, cmd := range newRoot(drivers()).Commands() {
		require.True(t, shown[cmd.Name()] || cmd.Name() == "version", "docs/cli.md shows %s", cmd.Name())
	}
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		_, _, err := ndjson.NewReader("docs/cli.md", strings.NewReader(block[1])).Next()
		require.NoError(t, err)
	}
}

// words splits a line as a shell does, as far as the document needs it. It drops a
// redirected input.
func words(line string) (words []string) {
	for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(strings.TrimSpace(line), -1) {
		if !strings.HasPrefix(m[0], "<") {
			words = append(words, m[1]+m[2])
		}
	}
	return words
}
