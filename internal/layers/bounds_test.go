package layers_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	mostLines    = 350 // of a file
	mostInFunc   = 60  // lines of a function
	mostMethods  = 25  // of a type
	fewestParsed = 300 // files; fewer mean that the walk is wrong
)

// Outside tests every file, function and type is small.
func TestPartsAreSmall(t *testing.T) {
	files, methods := 0, map[string]int{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.LessOrEqual(t, strings.Count(string(text), "\n"), mostLines, path)
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
			require.LessOrEqual(t, lines, mostInFunc, "%s in %s", f.Name.Name, path)
			if f.Recv != nil {
				ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						methods[filepath.Dir(path)+"."+id.Name]++
					}
					return true
				})
			}
		}
		return nil
	}))
	require.Greater(t, files, fewestParsed)
	for name, n := range methods {
		require.LessOrEqual(t, n, mostMethods, name)
	}
}
