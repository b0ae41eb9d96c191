package redisstream

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The first line of a script has its name and version, so that an operator can recognize
// it in SLOWLOG or MONITOR.
func TestScriptsBeginWithNameAndVersion(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("lua/*.lua")
	require.NoError(t, err)
	require.Len(t, ScriptTexts(), len(files), "every script is listed")
	digests := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		require.Regexp(t, regexp.MustCompile(`\A-- `+name+` \d+: [^\n]+\.\n`), string(text))
		require.Contains(t, ScriptTexts(), newScript(name).text)
		digests[newScript(name).digest] = true
	}
	require.Len(t, digests, len(files))
}

// The text of a script is constant. Values that vary are keys and arguments, so that no
// name can become code.
func TestScriptsLoadNoCode(t *testing.T) {
	t.Parallel()
	for _, text := range ScriptTexts() {
		for _, word := range []string{"loadstring", "load(", "dofile", "%s"} {
			require.NotContains(t, text, word)
		}
	}
}
