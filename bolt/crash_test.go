package bolt

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
)

// victim names the file that a process of this test publishes to until it is killed.
const victim = "EVENTBUS_BOLT_VICTIM"

// A process that is killed while it publishes loses nothing that Publish has stored.
// The suite's Kill cannot show a commit that is cut short; this can.
func TestKilledProcessLosesNothing(t *testing.T) {
	if path := os.Getenv(victim); path != "" {
		publishForever(t, path)
		return
	}
	path := filepath.Join(t.TempDir(), "events.db")
	stored := map[string]bool{}
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), victim+"="+path)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			stored[lines.Text()] = true
			if i == 20+round {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		require.Error(t, cmd.Wait(), "the process was killed")
	}
	require.Greater(t, len(stored), 3*20)

	b := open(t, path, Options{})
	ms, err := b.Read(t.Context(), "orders", "", 1<<20)
	require.NoError(t, err)
	for _, m := range ms {
		delete(stored, m.Position)
	}
	require.Empty(t, stored, "positions that were stored and are lost")
}

// publishForever prints the position of each message that is stored.
func publishForever(t *testing.T, path string) {
	b := open(t, path, Options{})
	for {
		m := &backend.Message{Topic: "orders", Payload: make([]byte, 10_000)}
		require.NoError(t, b.Publish(t.Context(), []*backend.Message{m}))
		fmt.Fprintln(os.Stdout, m.Position)
	}
}
