// Package laws lists the laws of the suite.
package laws

import (
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/conformance/internal/laws/bus"
	"github.com/seed41896749/eventbus/conformance/internal/laws/contract"
)

// All returns every law: first the laws of the backend contract, then the laws of the bus.
func All() []law.Law { return append(contract.Laws(), bus.Laws()...) }
