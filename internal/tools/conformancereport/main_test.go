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
{"backend":"tenant","id":"L01","name":"lease","promise":"a | b","result":"fail"}
`), 0o644))
	var stdout strings.Builder

	require.EqualError(t, run(in, options{out: out, backends: []string{"nats", "inmemory", "nats-failover"}}, &stdout), "1 failed", "a failure must not hide behind a later pass")

	require.Equal(t, `test         inmemory     nats       
D01 deliver  not claimed  missing    
L01 lease    pass         fail       
inmemory: 2 tests: 1 pass, 1 not claimed
nats: 2 tests: 0 pass, 1 fail, 1 missing
test         nats-failover
D01 deliver  pass       
nats-failover: 1 tests: 1 pass
`, stdout.String())
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "| test | promise | inmemory | nats |\n|--|--|--|--|\n"+
		"| D01 deliver | c | not claimed | missing |\n"+
		`| L01 lease | a \| b | pass | fail |`+"\n\n## Selected tests during a failover\n\n"+
		"- **nats-failover**, 1 tests: 1 pass\n\n- D01 deliver on nats-failover passes: late\n\n| test | promise | nats-failover |\n|--|--|--|\n| D01 deliver | c | pass |\n")
}

// The page of different outcomes has no law whose outcome is the same for all.
func TestReportDiffering(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out.md")
	lines := `{"backend":"a","id":"L01","name":"lease","result":"pass"}
{"backend":"b","id":"L01","name":"lease","result":"pass"}
`
	require.NoError(t, os.WriteFile(in, []byte(lines), 0o644))
	require.NoError(t, run(in, options{out: out, differing: true}, &strings.Builder{}))
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "- **b**, 1 tests: 1 pass\n\nEvery test has the same outcome on all of them.\n")

	lines += `{"backend":"a","id":"D01","name":"deliver","promise":"c","result":"pass"}
{"backend":"b","id":"D01","name":"deliver","promise":"c","result":"weaker","why":"old"}
`
	require.NoError(t, os.WriteFile(in, []byte(lines), 0o644))
	require.NoError(t, run(in, options{out: out, differing: true}, &strings.Builder{}))
	page, err = os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "- D01 deliver on b is weaker: old\n\n| test | promise | a | b |\n|--|--|--|--|\n| D01 deliver | c | pass | weaker |\n")
	require.NotContains(t, string(page), "L01")
}

// A test of the engine alone must have run in memory, and the page says where it did not run.
func TestReportEngine(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out.md")
	lines := `{"backend":"nats","id":"R01","name":"rate","promise":"p","result":"engine"}` + "\n"
	require.NoError(t, os.WriteFile(in, []byte(lines), 0o644))
	require.EqualError(t, run(in, options{out: out}, &strings.Builder{}), "R01 rate ran on no backend: it tests the engine alone, so run the suite of inmemory too")

	lines += `{"backend":"inmemory","id":"R01","name":"rate","promise":"p","result":"pass"}` + "\n"
	require.NoError(t, os.WriteFile(in, []byte(lines), 0o644))
	require.NoError(t, run(in, options{out: out}, &strings.Builder{}))
	page, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(page), "- **nats**, 1 tests: 0 pass, 1 in memory only\n")
	require.Contains(t, string(page), "*memory*: the test is about the engine alone")
	require.Contains(t, string(page), "| R01 rate | p | pass | memory |\n")

	require.EqualError(t, run(in, options{backends: []string{"inmemory", "bolt"}}, &strings.Builder{}), "no results of bolt: did its suite run?")
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
			require.Error(t, run(in, options{}, &strings.Builder{}))
		})
	}
}
