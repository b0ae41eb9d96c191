package worker

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinesOfManyStayWhole(t *testing.T) {
	var out bytes.Buffer
	w := NewLineWriter(&out)
	const writers, each = 8, 200
	line := func(writer, i int) string {
		size := 10
		if i%50 == 7 {
			size = 3 * maxKept // longer than a Stream keeps
		}
		return fmt.Sprintf("%d-%d-%s", writer, i, strings.Repeat(string(rune('a'+writer)), size))
	}
	var done sync.WaitGroup
	for writer := range writers {
		done.Go(func() {
			s := w.Stream()
			for i := range each {
				text := line(writer, i)
				if i < each-1 {
					text += "\n" // the last line has no end
				}
				for len(text) > 0 {
					n := min(len(text), 1+(i*7919)%40000)
					if _, err := s.Write([]byte(text[:n])); err != nil {
						t.Error(err)
					}
					text = text[n:]
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	got := map[string]int{}
	for l := range strings.Lines(out.String()) {
		got[strings.TrimSuffix(l, "\n")]++
	}
	require.Len(t, got, writers*each)
	for writer := range writers {
		for i := range each {
			require.Equal(t, 1, got[line(writer, i)], "line %d of writer %d", i, writer)
		}
	}
}

func TestStreamPassesOnSeveralLinesAtOnce(t *testing.T) {
	var out bytes.Buffer
	s := NewLineWriter(&out).Stream()
	for _, piece := range []string{"a", "b\nc\n\nd", "", "e\n", "f"} {
		n, err := s.Write([]byte(piece))
		require.NoError(t, err)
		require.Equal(t, len(piece), n)
	}
	require.Equal(t, "ab\nc\n\nde\n", out.String())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.Equal(t, "ab\nc\n\nde\nf\n", out.String())
}

type failingOutput struct{ after int }

var errFull = errors.New("full")

func (f *failingOutput) Write(p []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestNothingIsWrittenAfterAnError(t *testing.T) {
	out := &failingOutput{after: 1}
	w := NewLineWriter(out)
	s, other := w.Stream(), w.Stream()
	_, err := s.Write([]byte("a\n"))
	require.NoError(t, err)
	select {
	case <-w.Broken():
		t.Fatal("not yet")
	default:
	}
	_, err = s.Write([]byte("b\n"))
	require.Equal(t, errFull, err)
	<-w.Broken()
	require.Equal(t, errFull, w.Err())

	out.after = 100
	_, err = other.Write([]byte(strings.Repeat("x", 2*maxKept)))
	require.Equal(t, errFull, err)
	require.Equal(t, errFull, other.Close())
	require.Equal(t, errFull, s.Close())
	_, err = w.Write([]byte("c\n"))
	require.Equal(t, errFull, err)
	require.Equal(t, 100, out.after)
}
