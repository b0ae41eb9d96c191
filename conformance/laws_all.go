// Package laws lists the laws of the suite.
package conformance

// laws returns every law: first the laws of the backend contract, then the laws of the bus.
func laws() []law { return append(contractLaws(), busLaws()...) }
