package layers_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every file and folder that these pages name in backquotes exists, so that a rename cannot leave
// them behind.
func TestNamedFilesExist(t *testing.T) {
	for _, name := range []string{"CONTRIBUTING.md", "docs/engine.md", "docs/BACKEND.md"} {
		page, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		text, _, _ := strings.Cut(string(page), "<!-- tree -->")
		for _, m := range namedFile.FindAllStringSubmatch(text, -1) {
			if !exists(m[1]) {
				t.Errorf("%s names %s, which does not exist", name, m[1])
			}
		}
	}
}

// namedFile finds a path with a slash, or a Go file, in backquotes.
var namedFile = regexp.MustCompile("`((?:\\.?[\\w-]+/)+[\\w.-]*|[\\w-]+\\.go)`")

// exists reports whether a file of that path, or of that ending, exists.
func exists(name string) bool {
	if _, err := os.Stat(filepath.Join("../..", name)); err == nil {
		return true
	}
	found := false
	_ = filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		if strings.HasSuffix(filepath.ToSlash(file), "/"+strings.TrimSuffix(name, "/")) {
			found = true
			return filepath.SkipAll
		}
		return err
	})
	return found
}
