package slab_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/slab"
)

// Pieces do not overlap, whatever Expect announced.
func TestPiecesAreApart(t *testing.T) {
	for _, announced := range []int{0, 10, 1 << 20} {
		var s slab.Slab
		s.Expect(announced, announced/1000, announced)
		source := []byte("abc")
		a, b := s.Payload(source), s.Payload(source)
		ta, tb := s.Text(source), s.Copy("abc")
		ha, hb := s.Headers(2), s.Headers(1)
		text, both := s.Both(source)
		text2, both2 := s.Both(source)
		source[0] = 'x'
		_ = append(a, "reaches b"...)
		_ = append(ha, hb[0])
		a[1], ha[1].Name = 'y', "name"
		require.Equal(t, "ayc", string(a))
		require.Equal(t, "abc", string(b))
		require.Equal(t, "abcabc", ta+tb)
		require.Empty(t, hb[0].Name)
		_ = append(both, "reaches what is next"...)
		both[2], both2[1] = 'z', 'z'
		require.Equal(t, "ab", text[:2], "what is not given away stays")
		require.Equal(t, "abz", string(both))
		require.Equal(t, "azc", string(both2))
		require.Equal(t, "ac", text2[:1]+text2[2:])
	}
}

func TestNothing(t *testing.T) {
	var s slab.Slab
	require.Nil(t, s.Payload(nil))
	require.NotNil(t, s.Payload([]byte{}))
	require.Empty(t, s.Payload([]byte{}))
	require.Nil(t, s.Headers(0))
	require.Empty(t, s.Text(nil))
	require.Empty(t, s.Copy(""))
	require.Nil(t, s.Alike(0, 10))
	text, own := s.Both(nil)
	require.Empty(t, text)
	require.Nil(t, own)
}

// Similar messages share memory for their headers. A message with more headers has its own
// memory, or begins a new piece.
func TestAlike(t *testing.T) {
	allocations := testing.AllocsPerRun(10, func() {
		var s slab.Slab
		for i := range 100 {
			s.Alike(3, 100-i)
		}
	})
	require.Equal(t, 1.0, allocations)
	var s slab.Slab
	for i := range 100 {
		n := i % 7
		h := s.Alike(n, 100-i)
		require.Len(t, h, n)
		require.Equal(t, n, cap(h))
		for k := range h {
			require.Empty(t, h[k].Name)
			h[k].Name = "taken"
		}
	}
}

// The messages of a read cost a few allocations together. A kept message does not keep a
// large neighbour alive.
func TestAllocations(t *testing.T) {
	small, large := bytes.Repeat([]byte("p"), 100), bytes.Repeat([]byte("l"), 5<<10)
	allocations := testing.AllocsPerRun(10, func() {
		var s slab.Slab
		for range 500 {
			s.Expect(100, 2, 50)
		}
		s.Expect(len(large), 0, 0)
		for range 500 {
			s.Payload(small)
			s.Headers(2)
			s.Text(small[:50])
		}
		s.Payload(large)
	})
	require.Equal(t, 4.0, allocations)
}

// Kept headers keep at most an arena of other headers alive.
func TestManyHeaders(t *testing.T) {
	allocations := testing.AllocsPerRun(10, func() {
		var s slab.Slab
		s.Expect(0, 5000, 0)
		for range 5000 {
			s.Headers(1)
		}
	})
	require.Equal(t, 3.0, allocations)
}
