// Package bus has the laws of the bus. They run on a bus on the backend under test.
package conformance

import "slices"

// busLaws returns the laws of the bus, in the order in which they are best read.
func busLaws() []law {
	return slices.Concat(
		busPublishLaws, busDeliverLaws, busLeaseLaws, busRetryLaws, busOrderLaws, busModeLaws, busLifeLaws, busFaultLaws,
	)
}
