package redisstream_test

import (
	"fmt"

	"github.com/seed41896749/eventbus/redisstream"
)

// Entries that other programs add to the topic payments are events, with the field
// customer_id as their key. eventbus.Open takes the driver.
func ExampleDriver_ConfigureTopic() {
	d, err := redisstream.Driver{}.ConfigureTopic("payments", map[string]string{"flat": "true", "flat_key": "customer_id"})
	if err != nil {
		panic(err)
	}
	fmt.Println(d.Schemes())
	_, err = redisstream.Driver{}.ConfigureTopic("payments", map[string]string{"flat": "maybe"})
	fmt.Println(err)
	// Output:
	// [redis rediss unix redis+sentinel redis+cluster]
	// redisstream: configure payments: setting "flat": is neither true nor false
}
