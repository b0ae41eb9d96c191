package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const source = `package p

import "sync"

var mu sync.Mutex

func Positive(n int) bool {
	mu.Lock()
	defer mu.Unlock()
	if n > 0 {
		return true
	}
	return false
}
`

func TestMutants(t *testing.T) {
	mutants, err := mutate("p.go", []byte(source))
	require.NoError(t, err)
	var all []string
	for _, m := range mutants {
		all = append(all, m.String())
	}
	require.Equal(t, []string{
		"p.go:8: without mu.Lock()",
		"p.go:9: without defer mu.Unlock()",
		"p.go:10: n > 0 -> !(n > 0)",
		"p.go:10: > -> >=",
		"p.go:10: > -> <=",
		"p.go:10: 0 -> (0+1)",
	}, all)
	require.Contains(t, string(mutants[3].source()), "if n >= 0 {")
	require.Len(t, only(mutants, "p.go:9"), 1)
}

// The report names the mutants that no test notices.
func TestSurvivors(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module p\n\ngo 1.26\n", "p.go": source,
		"p_test.go": "package p\n\nimport \"testing\"\n\nfunc TestConformance(t *testing.T) {\n\tif !Positive(2) || Positive(-1) {\n\t\tt.Fatal()\n\t}\n}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	var out strings.Builder
	o := options{budget: time.Minute, timeout: 2 * time.Second, run: "^TestConformance$", seed: 1}
	require.NoError(t, run(t.Context(), dir, o, &out))
	for _, survivor := range []string{"p.go:10: > -> >=", "p.go:10: 0 -> (0+1)"} {
		require.Contains(t, out.String(), fmt.Sprintf("survived: %s\n", survivor))
	}
	require.Contains(t, out.String(), "6 of 6 mutants tried with -seed 1: 4 noticed, 2 survived, 0 do not compile\n")
}
