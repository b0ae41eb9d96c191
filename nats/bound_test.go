package nats

import (
	"math/rand/v2"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// The server puts a redelivered message that does not fit behind the others. So the messages
// of a pull with a bound must fit, if the member has seen none that is larger for long. A
// redelivery is a few bytes larger than the delivery before, because its reply subject has
// larger numbers.
func TestRedeliveredMessagesFitIntoTheirPull(t *testing.T) {
	const longer = 6
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 0))
		largest := 200 + random.IntN(200<<10)
		var p puller
		p.batch = maxBatch
		p.observeSizes([]*natsgo.Msg{{Data: make([]byte, largest-longer)}})
		for range 40 {
			p.observeSizes([]*natsgo.Msg{{Data: make([]byte, 1+random.IntN(largest/2))}})
			left := int64(p.largest + random.IntN(20*largest)) // with less, no pull is sent
			req := p.request(20, left, false)
			require.LessOrEqual(t, req.Batch*largest, req.MaxBytes, "%d messages of %d bytes in a pull of %d (seed %d)", req.Batch, largest, req.MaxBytes, seed)
		}
	}
}
