package lifecycle

import (
	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/observer"
)

// Observer returns the hooks that make the records. Combine it with others using [observer.Join]. A
// hook takes about a microsecond. The hook Handled makes the engine settle each event by itself,
// which costs fast handlers some throughput.
func (r *Recorder) Observer() observer.Observer {
	return observer.Observer{
		Started: func(e observer.Started) { r.add(about(Active, e.About)) },
		Handled: func(e observer.Handled) {
			if state := ended(e); state != "" {
				rec := about(state, e.About)
				rec.TookMicros, rec.Error = e.Took.Microseconds(), text(e.Err)
				r.add(rec)
			}
		},
		Retried: func(e observer.Retried) {
			rec := about(Retried, e.About)
			rec.DelayMicros, rec.Error, rec.Class = e.After.Microseconds(), text(e.Err), e.Class
			if e.Outcome == observer.Snooze {
				rec.State, rec.Error, rec.Class = Snoozed, "", ""
			} else {
				rec.NextAttempt, rec.MaxAttempts = e.Attempt+1, e.MaxAttempts
			}
			r.add(rec)
		},
		DeadLettered: func(e observer.DeadLettered) {
			rec := about(DeadLettered, e.About)
			rec.Reason, rec.Error, rec.Class = e.Reason, text(e.Err), e.Class
			r.add(rec)
		},
		Discarded: func(e observer.Discarded) {
			rec := about(Discarded, e.About)
			if e.Reason == eventbus.ReasonExpired {
				rec.State = Expired
			}
			rec.Reason, rec.Error = e.Reason, text(e.Err)
			r.add(rec)
		},
		LeaseLost: func(e observer.LeaseLost) {
			rec := about(LeaseLost, e.About)
			rec.Error = text(e.Err)
			r.add(rec)
		},
	}
}

func about(state State, a observer.About) Record {
	return Record{State: state, Topic: a.Topic, Group: a.Group, ID: a.ID, Type: a.Type, Attempt: a.Attempt}
}

// ended returns the state after a run. It is empty if another hook makes the record, with a reason
// or a delay.
func ended(e observer.Handled) State {
	switch {
	case e.Outcome == observer.Snooze, e.Outcome == observer.Discard:
		return ""
	case e.Err == nil && e.Outcome == observer.Acknowledge:
		return Completed
	case e.Err == nil && e.Outcome == observer.Hold:
		return Held
	case e.Err == nil: // the lease is lost
		return ""
	}
	return Failed
}

// text returns the text of err for a record.
func text(err error) string {
	const most = 4 << 10
	s := observer.ErrorText(err)
	return s[:min(len(s), most)]
}
