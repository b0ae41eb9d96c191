package service

import "github.com/seed41896749/eventbus"

// inherit returns o with the value of defaults in each zero field that a group inherits.
func inherit(o, defaults eventbus.SubscribeOptions) eventbus.SubscribeOptions {
	d := defaults
	if o.Order == eventbus.OrderTotal { // it needs a single handler
		d.Concurrency, d.MaxConcurrency = 0, 0
	}
	setDefault(&o.Concurrency, d.Concurrency)
	// A group's greater Concurrency takes precedence over a limit for all groups.
	if d.MaxConcurrency > 0 {
		d.MaxConcurrency = max(d.MaxConcurrency, o.Concurrency)
	}
	setDefault(&o.MaxConcurrency, d.MaxConcurrency)
	if d.MaxInFlight > 0 {
		d.MaxInFlight = max(d.MaxInFlight, o.Concurrency, o.MaxConcurrency)
	}
	setDefault(&o.MaxInFlight, d.MaxInFlight)
	setDefault(&o.MaxBytes, d.MaxBytes)
	setDefault(&o.Lease, d.Lease)
	setDefault(&o.Timeout, d.Timeout)
	setDefault(&o.MaxReceive, d.MaxReceive)
	setDefault(&o.DeadLetter, d.DeadLetter)
	if o.Limiter == nil {
		o.Limiter = d.Limiter
	}
	if o.OnDeadLetter == nil {
		o.OnDeadLetter = d.OnDeadLetter
	}

	setDefault(&o.Retry.MaxAttempts, d.Retry.MaxAttempts)
	setDefault(&o.Retry.Initial, d.Retry.Initial)
	if d.Retry.Max > 0 {
		d.Retry.Max = max(d.Retry.Max, o.Retry.Initial)
	}
	setDefault(&o.Retry.Max, d.Retry.Max)
	setDefault(&o.Retry.Jitter, d.Retry.Jitter)
	if o.Retry.Delay == nil {
		o.Retry.Delay = d.Retry.Delay
	}
	if o.Retry.Rules == nil {
		o.Retry.Rules = d.Retry.Rules
	}
	return o
}

// setDefault sets v to value if v is zero.
func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// checkDefaults returns an error if d sets a field that belongs to a single group.
func checkDefaults(d eventbus.SubscribeOptions) error {
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"Group", d.Group != ""},
		{"Topics", len(d.Topics) > 0},
		{"Ack", d.Ack != eventbus.AckOnSuccess},
		{"Order", d.Order != eventbus.OrderByKey},
		{"Start", d.Start != eventbus.StartEarliest},
		{"MaxRedelivered", d.MaxRedelivered != 0},
		{"OnFailure", d.OnFailure != eventbus.Skip},
		{"LeaveTimeouts", d.LeaveTimeouts},
		{"DeadLetterExpired", d.DeadLetterExpired},
		{"DeadLetterOnReceive", d.DeadLetterOnReceive},
	} {
		if f.set {
			return &eventbus.FieldError{Field: "service.Options.Defaults." + f.field, Reason: "is set, but each group sets it for itself"}
		}
	}
	return nil
}
