package watch

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strings"

	"github.com/seed41896749/eventbus/backend"
)

// lawLabel is the pprof label that says to which law a goroutine belongs.
const lawLabel = "conformance-law"

// labelled labels this goroutine, and the goroutines that it starts later, with the law.
func labelled(ctx context.Context, law string) {
	pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(lawLabel, law)))
}

// maxStacks bounds the stacks in a dump, and maxFrames the frames of a stack.
const (
	maxStacks = 6
	maxFrames = 10
)

// stacks returns the function in which the law waits. It also returns a dump of the law's
// goroutines whose stacks contain a function of the packages.
func stacks(law string, packages []string) (waits, driver string) {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)  // a buffer takes everything
	_, groups, _ := strings.Cut(profile.String(), "\n") // without the total
	var found []string
	for _, group := range strings.Split(groups, "\n\n") {
		if !strings.Contains(group, fmt.Sprintf("%q:%q", lawLabel, law)) {
			continue
		}
		text, of, at := readStack(group, packages)
		if at != "" {
			waits = at
		}
		if of {
			found = append(found, text)
		}
	}
	if more := len(found) - maxStacks; more > 0 {
		found = append(found[:maxStacks], fmt.Sprintf("  and %d other stacks\n", more))
	}
	return waits, strings.Join(found, "")
}

// readStack returns a short text of one stack of a goroutine profile. It reports whether
// the stack goes through the packages. If the goroutine runs the law, readStack also
// returns the place where the law waits.
func readStack(group string, packages []string) (text string, through bool, waits string) {
	lines := strings.Split(group, "\n")
	count, _, _ := strings.Cut(lines[0], " ")
	own, below := false, stack{}
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "#" { // a label, or the end
			continue
		}
		function, at := frame(fields[2]), path.Base(fields[len(fields)-1])
		below.add(function, at)
		through = through || inPackage(function, packages)
		own = own || strings.HasSuffix(function, lawFunction)
		if strings.Contains(function, lawPackages) { // the outermost function of package laws is the law, the inner functions are its helpers
			waits = path.Base(function) + " " + at
		}
	}
	if !own {
		waits = ""
	}
	return fmt.Sprintf("  goroutines: %s\n%s", count, &below), through, waits
}

// A stack is a short text of frames. It begins with the innermost frame, and ends with the
// law's call of the backend.
type stack struct {
	strings.Builder
	frames int
	called bool
}

func (s *stack) add(function, at string) {
	if s.called {
		return
	}
	s.called = plumbing.MatchString(function)
	if s.frames++; s.frames <= maxFrames {
		fmt.Fprintf(s, "    %s %s\n", path.Base(function), at)
	}
}

// lawPackages is part of the name of each function of a law.
const lawPackages = "/conformance/internal/laws/"

// plumbing matches the functions through which laws call the backend.
var plumbing = regexp.MustCompile(`/conformance/internal/(calls|law|buslaw)\.`)

// panicStack returns the frames that led to a panic, after the panic was recovered.
func panicStack() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var s stack
	for below := false; ; {
		f, more := frames.Next()
		if below && !strings.HasPrefix(f.Function, "runtime.") {
			s.add(f.Function, fmt.Sprintf("%s:%d", path.Base(f.File), f.Line))
		}
		below = below || f.Function == "runtime.gopanic"
		if !more {
			return s.String()
		}
	}
}

// lawFunction is on the stack of the goroutine that runs a law, and on no other.
const lawFunction = "/conformance/internal/watch.(*Watch).test"

// frame returns the name of the function in a line of a profile, without the offset.
func frame(s string) string {
	if i := strings.LastIndexByte(s, '+'); i >= 0 {
		s = s[:i]
	}
	return strings.ReplaceAll(s, "%2e", ".")
}

func inPackage(function string, packages []string) bool {
	for _, p := range packages {
		if strings.HasPrefix(function, p+".") || strings.HasPrefix(function, p+"/") {
			return true
		}
	}
	return false
}

// packagesOf returns the packages of a backend and of each backend that it wraps.
func packagesOf(b backend.Backend) (packages []string) {
	for b != nil {
		t := reflect.TypeOf(b)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.PkgPath() != "" {
			packages = append(packages, t.PkgPath())
		}
		w, ok := b.(interface{ Unwrap() backend.Backend })
		if !ok {
			return packages
		}
		b = w.Unwrap()
	}
	return packages
}
