package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/demo"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/shop"
)

func TestDemo(t *testing.T) {
	code, stdout, stderr := command(t, "demo")
	require.Zero(t, code, stderr)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "2000 events from the shop in ")
	require.Contains(t, stdout, "\nlost 0, out of order 0, duplicated 0\n")
	for _, group := range []string{"billing", "shipping", "audit"} {
		require.Contains(t, stdout, "\n"+group+" ")
	}
}

func TestDemoAsJSON(t *testing.T) {
	t.Parallel()
	name := file(t, strings.Repeat(`{"key":"k","data":{"order":"o"}}`+"\n", 500))
	code, stdout, stderr := command(t, "demo", "--json", "--input", name)
	require.Zero(t, code, stderr)
	var r demo.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r), "nothing else on stdout")
	require.Equal(t, name, r.Input)
	require.Equal(t, 500, r.Published)
	require.Len(t, r.Groups, 3)
}

func TestDemoReadsStandardInput(t *testing.T) {
	root := newRoot(drivers())
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetIn(strings.NewReader(`{"id":"1"}`))
	root.SetArgs([]string{"demo", "--input", "-"})
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "1 event from standard input")
}

// The demo keeps no events: 64 MiB of input pass through a much smaller heap.
func TestDemoDoesNotHoldItsInput(t *testing.T) {
	const events, size = 16 << 10, 4 << 10
	from, to := io.Pipe()
	go func() {
		pad := strings.Repeat("x", size)
		for i := range events {
			fmt.Fprintf(to, `{"key":"k-%d","headers":{"pad":"%s"},"data":{}}`+"\n", i%500, pad)
		}
		to.Close()
	}()
	var most uint64
	stop := sampleHeap(&most)
	root := newRoot(drivers())
	root.SetOut(io.Discard)
	root.SetIn(from)
	root.SetArgs([]string{"demo", "--input", "-"})
	err := root.ExecuteContext(t.Context())
	stop()
	require.NoError(t, err)
	t.Logf("at most %d KiB live", most>>10)
	require.Less(t, most, uint64(events*size*3/4), "bytes live at any time")
}

// sampleHeap records the largest live heap after a collection, until stop is called.
func sampleHeap(most *uint64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			runtime.GC()
			live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
			metrics.Read(live)
			*most = max(*most, live[0].Value.Uint64())
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// The demo deletes its topics if the count is right, even if it cannot be printed.
func TestDemoLeavesNoTopicsBehindAClosedPipe(t *testing.T) {
	b := newBench(t)
	from, to := io.Pipe()
	require.NoError(t, from.Close())
	var errs bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []backend.Driver{sharedDriver{b.b}}, []string{"demo", "--url", "test:"}, strings.NewReader(""), to, &errs))
	require.Equal(t, "eventbus: demo: io: read/write on closed pipe\n", errs.String())
	require.Empty(t, b.ok("", "topics").stdout)
}

func TestDemoEndsWithASignal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	from, to := io.Pipe()
	go func() {
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(to, `{"key":"k-%d"}`+"\n", i%100); err != nil {
				return
			}
			if i == 5000 {
				cancel(fmt.Errorf("interrupt signal received"))
			}
		}
	}()
	defer from.Close()
	root := newRoot(drivers())
	root.SetOut(io.Discard)
	root.SetIn(from)
	root.SetArgs([]string{"demo", "--input", "-"})
	err := root.ExecuteContext(ctx)
	require.ErrorContains(t, err, "demo: ended after ")
	require.ErrorContains(t, err, "interrupt signal received")
	require.NotContains(t, err.Error(), "drain")
}

func TestReadmeShowsTheAccount(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	code, stdout, stderr := command(t, "demo")
	require.Zero(t, code, stderr)
	_, account, _ := strings.Cut(stdout, "\n\n")
	require.Contains(t, string(readme), "```text\n"+account+"```")
}

// The demo can run repeatedly on a broker that keeps all events.
func TestDemoOnBrokers(t *testing.T) {
	text, err := io.ReadAll(shop.Events())
	require.NoError(t, err)
	morning := file(t, strings.Join(strings.SplitAfterN(string(text), "\n", 301)[:300], ""))
	onBrokers(t, func(t *testing.T, s brokerBench) {
		for _, args := range [][]string{{}, {}, {"--topic-prefix", "shop"}, {"--topic-prefix", "shop"}} {
			r := s.run("", append([]string{"demo", "--input", morning}, args...)...)
			require.Zero(t, r.code, r.stdout+r.stderr)
			require.Contains(t, r.stdout, "\nlost 0, out of order 0, duplicated ")
		}
		require.NotContains(t, s.run("", "topics").stdout, "demo-", "it leaves nothing behind")
	})
}
