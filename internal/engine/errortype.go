package engine

// ErrorType returns the error.type of a signal for telemetry. For a signal that is a failure
// it returns "", so that telemetry uses the wrapped error.
func (s *signal) ErrorType() string {
	switch s.kind {
	case snooze:
		return "snooze"
	case drop:
		return "drop"
	}
	return ""
}
