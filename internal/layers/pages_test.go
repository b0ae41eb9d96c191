package layers

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pages returns the Markdown files of the project.
func pages(t *testing.T) (files []string) {
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "examples/*/*.md", "benchmarks/*.md"} {
		found, err := filepath.Glob(filepath.Join("../..", pattern))
		require.NoError(t, err)
		files = append(files, found...)
	}
	return files
}

var (
	code    = regexp.MustCompile("(?s)```.*?```|`[^`]*`")
	mdLink  = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noWord  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Every link of a page leads to a file of the project, and its anchor to a heading there.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range mdLink.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			to, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				continue
			}
			require.NoError(t, err, "%s links to %s", page, m[1])
			if anchor != "" {
				require.Contains(t, anchors(string(to)), anchor, "%s links to %s", page, m[1])
			}
		}
	}
}

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		all = append(all, strings.ReplaceAll(noWord.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

// taught are the pages whose Go blocks must be compiled code.
var taught = []string{"README.md", "docs/getting-started.md", "docs/recipes.md", "docs/retention.md", "docs/groups.md", "docs/scaling.md"}

// Every Go block of these pages is in a Go file of the project, line by line.
func TestBlocksAreCompiled(t *testing.T) {
	var files []string
	require.NoError(t, filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if filepath.Ext(path) == ".go" {
			text, err := os.ReadFile(path)
			files = append(files, string(text))
			return err
		}
		return err
	}))
	for _, page := range taught {
		text, err := os.ReadFile(filepath.Join("../..", page))
		require.NoError(t, err)
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			require.True(t, slices.ContainsFunc(files, func(f string) bool { return strings.Contains(f, block[1]) }),
				"%s: no Go file has this block:\n%s", page, block[1])
		}
	}
}
