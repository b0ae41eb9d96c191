package engine

// ErrorType names the verdict for telemetry, if it is no failure. Another signal is as its
// cause is.
func (s *signal) ErrorType() string {
	switch s.kind {
	case snooze:
		return "snooze"
	case drop:
		return "drop"
	}
	return ""
}
