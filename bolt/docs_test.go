package bolt

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every Go block of docs/BACKEND.md is a part of a file here, which is compiled and
// tested.
func TestPageShowsCompiledCode(t *testing.T) {
	page, err := os.ReadFile("../docs/BACKEND.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var sources []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		sources = append(sources, string(source))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		shown := slices.ContainsFunc(sources, func(source string) bool { return strings.Contains(source, block[1]) })
		require.True(t, shown, "docs/BACKEND.md shows code that is in no file here:\n%s", block[1])
	}
}
