// Package contract contains the laws of the backend contract.
package contract

import (
	"slices"

	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// Laws returns the laws of the contract, family by family.
func Laws() []law.Law {
	return slices.Concat(
		publishLaws, refuseLaws, contentLaws, onceLaws, positionLaws, receiveLaws, byteLaws, wakeLaws, groupLaws, startLaws, startAtLaws,
		ackLaws, leaseLaws, delayLaws, delayEndLaws, extendLaws, fenceLaws, instanceLaws, readLaws, removeLaws, statsLaws, adminLaws,
		declareLaws, keepLaws, ephemeralLaws, pauseLaws, settlerLaws, maintainLaws, closeLaws, lostLaws, crashLaws, peerLaws, outageLaws,
	)
}
