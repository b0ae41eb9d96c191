package eventbus_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed41896749/eventbus"
)

var errBusy = errors.New("the payment service is busy")

// The delay depends on the error. A busy service is asked again after a minute. After any
// other failure the delay grows by a second with each attempt.
func ExampleRetry() {
	retry := eventbus.Retry{
		Delay: func(d *eventbus.Delivery, err error) time.Duration {
			if errors.Is(err, errBusy) {
				return time.Minute
			}
			return time.Duration(d.Attempt) * time.Second
		},
	}
	second := &eventbus.Delivery{Event: eventbus.Event{Type: "order.placed"}, Attempt: 2}
	fmt.Println(retry.Delay(second, errBusy), retry.Delay(second, errors.New("disk")))
	// Output: 1m0s 2s
}
