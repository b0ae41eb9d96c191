package backend

import (
	"context"
	"fmt"
	"time"
)

// A Pauser is a [Backend] whose groups can be paused. The broker stores the pause, so it is one of
// all members, and also of members that attach later. If the topic or group does not exist the error is [ErrGone].
type Pauser interface {
	// Pause pauses a group, or changes its pause. No Receive that begins a second after Pause
	// has returned delivers messages, until p.Until or Resume. Held messages can be settled as
	// ever, and their leases expire as ever. ResetGroup leaves a group paused, and DeleteGroup
	// ends its pause. If p.Until has passed, the call is like Resume.
	Pause(ctx context.Context, topic, group string, p Pause) error

	// Resume ends a pause. Members that wait get the messages that are due within two seconds. To resume a group
	// that is not paused is no error.
	Resume(ctx context.Context, topic, group string) error

	// Paused returns the present pause of a group, or the zero Pause if it is not paused.
	Paused(ctx context.Context, topic, group string) (Pause, error)
}

// A Pause says by whom, why and how long a group is paused.
type Pause struct {
	Since time.Time // when the present pause began, set by the backend; zero: the group is not paused
	Until time.Time // when the pause ends by itself; zero: never
	By    string    // the operator, for other operators; at most 256 bytes
	Why   string    // the reason, for other operators; at most 256 bytes
}

// A PausedError is the error of Receive for a paused group, as soon as the driver knows of the
// pause: after 10 seconds at the latest. Until then Receive waits, and returns no deliveries. It matches [ErrPaused].
type PausedError struct{ Pause Pause }

func (e *PausedError) Error() string {
	text := "the group is paused"
	if e.Pause.By != "" {
		text += " by " + e.Pause.By
	}
	if !e.Pause.Until.IsZero() {
		text += " until " + e.Pause.Until.Format(time.RFC3339)
	}
	if e.Pause.Why != "" {
		text += ": " + e.Pause.Why
	}
	return text
}

// Is reports whether target is [ErrPaused].
func (e *PausedError) Is(target error) bool { return target == ErrPaused }

// PauserOf returns the Pauser that b is or wraps. If there is none the error matches
// [errors.ErrUnsupported].
func PauserOf(b Backend) (Pauser, error) {
	if p, ok := As[Pauser](b); ok {
		return p, nil
	}
	return nil, missing("pause groups")
}

// MaxPauseText is the most bytes of Pause.By and of Pause.Why.
const MaxPauseText = 256

// Check returns an error that matches [ErrRefused] if a text of p is too long.
func (p Pause) Check() error {
	if len(p.By) > MaxPauseText || len(p.Why) > MaxPauseText {
		return fmt.Errorf("%w: by or why of a pause is longer than %d bytes", ErrRefused, MaxPauseText)
	}
	return nil
}
