package demo

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/cmd/eventbus/internal/shop"
)

func TestInputRefusesAnIDThatIsThereTwice(t *testing.T) {
	in := NewInput("in", strings.NewReader("{\"id\":\"first\"}\n{}\n{}\n{\"id\":\"first\"}\n"))
	for range 3 {
		_, _, err := in.Next()
		require.NoError(t, err)
	}
	_, _, err := in.Next()
	require.EqualError(t, err, `in:4: the id "first" is there twice`)
}

func TestTheShopCanBeRead(t *testing.T) {
	in := NewInput("shop", shop.Events())
	n, keys, poison := 0, map[string]bool{}, 0
	for {
		e, _, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		n++
		keys[e.Key] = true
		if e.Payload[0] != '{' {
			poison++
		}
	}
	require.Equal(t, 2000, n)
	require.Greater(t, len(keys), 200, "customers")
	require.Greater(t, poison, 3, "events whose data cannot be decoded")
}
