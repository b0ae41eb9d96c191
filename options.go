package eventbus

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/observer"
)

// Effective returns o with the default in each zero field, as New uses it.
func (o Options) Effective() Options {
	if o.Observer.IsZero() {
		o.Observer = observer.Slog(nil)
	}
	setDefault(&o.Service, programName())
	setDefault(&o.Timeout, time.Minute)
	setDefault(&o.PublishTimeout, 30*time.Second)
	setDefault(&o.OpenTimeout, -1)
	setDefault(&o.DrainTimeout, 25*time.Second)
	setDefault(&o.MaxPayload, MaxPayload)
	setDefault(&o.MaxPending, 10_000)
	setDefault(&o.MaxPendingBytes, 64<<20)
	return o
}

// programName returns the name of the program's file as a URI reference.
func programName() string {
	name := "unknown"
	if len(os.Args) > 0 && os.Args[0] != "" {
		name = strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	}
	return (&url.URL{Path: name[:min(len(name), maxText/4)]}).String() // escaped it is at most three times as long
}

// Process returns the name of this process in reports for operators: the instance, or the service
// with the machine and the number of the process.
func (o Options) Process() string {
	if o.Instance != "" {
		return o.Instance
	}
	host, _ := os.Hostname() // without one, the number must do
	service := cmp.Or(o.Service, programName())
	return fmt.Sprintf("%s@%s/%d", service[:min(len(service), maxText/4)], host, os.Getpid())
}

func (o Options) check(l backend.Limits) error {
	switch {
	case o.MaxPayload < 0:
		return &FieldError{Field: "Options.MaxPayload", Reason: "is negative"}
	case l.Payload > 0 && o.MaxPayload > max(l.Payload-headerRoom, MaxPayload):
		return &FieldError{Field: "Options.MaxPayload", Reason: fmt.Sprintf("is %d bytes, and the backend takes %d", o.MaxPayload, l.Payload-headerRoom)}
	case o.MaxPending < 0:
		return &FieldError{Field: "Options.MaxPending", Reason: "is negative"}
	case o.WhenFull > DropOldest:
		return &FieldError{Field: "Options.WhenFull", Reason: fmt.Sprintf("is %d, which is no WhenFull", o.WhenFull)}
	case o.MaxPendingBytes < 0:
		return &FieldError{Field: "Options.MaxPendingBytes", Reason: "is negative"}
	case o.Dedup && l.OnceWindow == 0:
		return &FieldError{
			Field: "Options.Dedup", Reason: "is set, but the backend does not remember IDs",
			Err: errors.ErrUnsupported,
		}
	case o.Instance != "" && backend.CheckName(o.Instance) != nil:
		return &FieldError{Field: "Options.Instance", Reason: backend.CheckName(o.Instance).Error()}
	case o.Instance != "" && !l.Instances:
		return &FieldError{
			Field: "Options.Instance", Reason: "is set, but the backend cannot replace the members of an earlier incarnation",
			Err: errors.ErrUnsupported,
		}
	case len(o.Service) > maxText:
		return &FieldError{Field: "Options.Service", Reason: "is longer than 512 bytes", Err: ErrTooLarge}
	}
	for i, m := range o.Middleware {
		if m == nil {
			return &FieldError{Field: fmt.Sprintf("Options.Middleware[%d]", i), Reason: "is nil"}
		}
	}
	for i, m := range o.PublishMiddleware {
		if m == nil {
			return &FieldError{Field: fmt.Sprintf("Options.PublishMiddleware[%d]", i), Reason: "is nil"}
		}
	}
	if err := o.checkTopics(l); err != nil {
		return err
	}
	if err := checkClasses(o.ErrorClasses); err != nil {
		return err
	}
	return checkText("Options.Service", o.Service)
}

// setDefault sets v to value if v is zero.
func setDefault[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
