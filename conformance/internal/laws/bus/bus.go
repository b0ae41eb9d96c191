// Package bus contains the laws of the bus. They run a bus on the backend under test.
package bus

import (
	"slices"

	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// Laws returns the laws of the bus, family by family.
func Laws() []law.Law {
	return slices.Concat(
		publishLaws, deliverLaws, leaseLaws, instanceLaws, retryLaws, policyLaws, deadLetterLaws, redriveLaws, buryLaws, orderLaws, modeLaws, batchLaws,
		lifeLaws, limitLaws, faultLaws, lostLaws, stayLaws, middlewareLaws,
		behindLaws, starveLaws, stuckLaws, hangingLaws, handOverLaws, scheduleLaws, recurringLaws, eachLaws, elasticLaws, partitionLaws, failedKeyLaws, ownerLaws, partitionNumberLaws,
		topicLaws, serviceLaws,
	)
}
