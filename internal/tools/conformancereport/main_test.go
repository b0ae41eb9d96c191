package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out.md")
	require.NoError(t, os.WriteFile(in, []byte(`
{"backend":"nats","id":"L01","name":"lease","promise":"a | b","result":"fail"}
{"backend":"nats","id":"L01","name":"lease","promise":"a | b","result":"pass"}
{"backend":"inmemory","id":"L01","name":"lease","promise":"a | b","result":"pass"}
{"backend":"inmemory","id":"D01","name":"deliver","promise":"c","result":"not claimed"}
{"backend":"nats-failover","id":"D01","name":"deliver","promise":"c","result":"pass","why":"late","some":true}
`), 0o644))
	var stdout strings.Builder

	require.EqualError(t, run(in, out, "make conformance", false, &stdout), "1 failed", "a failure must not hide behind a later pass")

	require.Equal(t, `law          inmemory     nats       
D01 deliver  not claimed  missing    
L01 lease    pass         fail       
inmemory: 2 laws: 1 pass, 1 not claimed
nats: 2 laws: 0 pass, 1 fail, 1 missing
law          nats-failover
D01 deliver  pass       
nats-failover: 1 laws: 1 pass
`, stdout.String())
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "| law | promise | inmemory | nats |\n|--|--|--|--|\n"+
		"| D01 deliver | c | not claimed | missing |\n"+
		`| L01 lease | a \| b | pass | fail |`+"\n\n## Some laws, with trouble besides\n\n"+
		"- **nats-failover**, 1 laws: 1 pass\n\n- D01 deliver on nats-failover passes: late\n\n| law | promise | nats-failover |\n|--|--|--|\n| D01 deliver | c | pass |\n")
}

// The page of different outcomes has no law whose outcome is the same for all.
func TestReportDiffering(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out.md")
	lines := `{"backend":"a","id":"L01","name":"lease","result":"pass"}
{"backend":"b","id":"L01","name":"lease","result":"pass"}
`
	require.NoError(t, os.WriteFile(in, []byte(lines), 0o644))
	require.NoError(t, run(in, out, "make versions", true, &strings.Builder{}))
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "- **b**, 1 laws: 1 pass\n\nEach law has the same outcome on all of them.\n")

	lines += `{"backend":"a","id":"D01","name":"deliver","promise":"c","result":"pass"}
{"backend":"b","id":"D01","name":"deliver","promise":"c","result":"weaker","why":"old"}
`
	require.NoError(t, os.WriteFile(in, []byte(lines), 0o644))
	require.NoError(t, run(in, out, "make versions", true, &strings.Builder{}))
	page, err = os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "- D01 deliver on b is weaker: old\n\n| law | promise | a | b |\n|--|--|--|--|\n| D01 deliver | c | pass | weaker |\n")
	require.NotContains(t, string(page), "L01")
}

func TestReportRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":           "",
		"an unknown result": `{"backend":"nats","id":"L01","name":"lease","promise":"a","result":"maybe"}`,
		"half a line":       `{"backend":"nats"`,
	} {
		t.Run(name, func(t *testing.T) {
			in := filepath.Join(t.TempDir(), "in")
			require.NoError(t, os.WriteFile(in, []byte(text), 0o644))
			require.Error(t, run(in, "", "", false, &strings.Builder{}))
		})
	}
}
