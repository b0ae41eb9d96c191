package layers_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tree in CONTRIBUTING.md has one line per Go file that is not a test, and no two files of a
// folder share a line.
func TestTree(t *testing.T) {
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, tree, ok := strings.Cut(string(page), "<!-- tree -->\n")
	if !ok {
		t.Fatal("CONTRIBUTING.md has no <!-- tree -->")
	}
	folder, lines := "", map[string]string{}
	for line := range strings.SplitSeq(tree, "\n") {
		if heading := folderLine.FindStringSubmatch(line); heading != nil {
			folder = heading[1]
			continue
		}
		row := fileLine.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		name := path.Join(folder, row[1])
		for other, says := range lines {
			if other == name || path.Dir(other) == folder && says == row[2] {
				t.Errorf("the tree in CONTRIBUTING.md says of %s what it says of %s: are they one file?", name, other)
			}
		}
		lines[name] = row[2]
	}
	var files []string
	err = filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go"):
			files = append(files, strings.TrimPrefix(filepath.ToSlash(file), "../../"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if _, ok := lines[file]; !ok {
			t.Errorf("the tree in CONTRIBUTING.md lacks %s", file)
		}
	}
	for name := range lines {
		if !slices.Contains(files, name) {
			t.Errorf("the tree in CONTRIBUTING.md has %s, which does not exist", name)
		}
	}
}

var (
	folderLine = regexp.MustCompile("^\\*\\*`([^`]+)`\\*\\*")
	fileLine   = regexp.MustCompile("^- `([^`]+\\.go)` +(.+)$")
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
