package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/faults"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/conformance/internal/laws"
	"github.com/seed41896749/eventbus/conformance/internal/report"
	"github.com/seed41896749/eventbus/conformance/internal/runner"
)

// faultsEnv is the environment variable by which TestFaults tells its processes the file with
// their trials.
const faultsEnv = "EVENTBUS_FAULTS"

// matrixEnv is the environment variable that makes TestFaults try every fault with the laws
// whose names match a regular expression. Then it only reports which faults fail them. Use it
// to find the faults of a new law: EVENTBUS_FAULT_MATRIX='B.D01|C108'.
const matrixEnv = "EVENTBUS_FAULT_MATRIX"

// A faultTrial is a fault and the laws to run with it.
type faultTrial struct {
	Fault string
	Laws  []string // subtests
}

// TestFaults checks that every law can fail: it runs each fault with the laws that name it,
// and each of them must fail by its own assertion, not by a crash or a timeout.
//
// A law that fails also fails the test that runs it, so the trials are in processes of their
// own, one for each processor. If a law ends its process, a new process makes the rest of the
// trials.
func TestFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	matrix := os.Getenv(matrixEnv)
	trials := trialsOf(t, matrix)
	verdicts := tryAll(t, trials)
	var table strings.Builder
	for _, trial := range trials {
		for _, l := range trial.Laws {
			v := verdicts[l+" "+trial.Fault]
			if v != caught && matrix == "" {
				t.Errorf("law %s, fault %s: %s", l, trial.Fault, v)
			}
			if v != unnoticed {
				first, _, _ := strings.Cut(v, "\n")
				fmt.Fprintf(&table, "%-32s %-30s %s\n", trial.Fault, l, first)
			}
		}
	}
	t.Logf("fault × law\n%s", &table)
}

// trialsOf returns a trial of each fault: with the laws that name it, or with all laws that
// match the pattern, unless that is empty.
func trialsOf(t *testing.T, pattern string) (trials []faultTrial) {
	match, err := regexp.Compile(pattern)
	if err != nil {
		t.Fatalf("%s: %v", matrixEnv, err)
	}
	for _, f := range faults.All() {
		trial := faultTrial{Fault: f.Name}
		for _, l := range laws.All() {
			if pattern == "" && slices.Contains(l.Faults, f.Name) || pattern != "" && match.MatchString(l.Subtest()) {
				trial.Laws = append(trial.Laws, l.Subtest())
			}
		}
		trials = append(trials, trial)
	}
	return trials
}

const (
	caught    = "caught"
	unnoticed = "NOT NOTICED"
)

// tryAll makes the trials in as many processes at a time as there are processors, and returns
// the verdict of each law and fault.
func tryAll(t *testing.T, trials []faultTrial) map[string]string {
	verdicts := map[string]string{}
	next := make(chan []faultTrial)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for some := range next {
				for len(some) > 0 {
					got := tryOnce(t, some)
					if len(got) == 0 {
						t.Errorf("no results of %v", some)
						break
					}
					some = untried(some, got)
					mu.Lock()
					maps.Copy(verdicts, got)
					mu.Unlock()
				}
			}
		})
	}
	for some := range slices.Chunk(trials, 8) { // few enough that the processors are busy until the end
		next <- some
	}
	close(next)
	wg.Wait()
	return verdicts
}

// untried returns the trials without the laws that have a verdict.
func untried(trials []faultTrial, verdicts map[string]string) (rest []faultTrial) {
	for _, trial := range trials {
		trial.Laws = slices.DeleteFunc(slices.Clone(trial.Laws), func(l string) bool { return verdicts[l+" "+trial.Fault] != "" })
		if len(trial.Laws) > 0 {
			rest = append(rest, trial)
		}
	}
	return rest
}

// tryOnce makes the trials in one process, and returns the verdicts until the process ended.
func tryOnce(t *testing.T, trials []faultTrial) map[string]string {
	work, err := json.Marshal(trials)
	if err != nil {
		t.Error(err)
		return nil
	}
	path := filepath.Join(t.TempDir(), "trials")
	if err := os.WriteFile(path, work, 0o600); err != nil {
		t.Error(err)
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		t.Error(err)
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, self, "-test.v", "-test.run=^TestFaulty$", "-test.timeout=4m")
	c.Env = append(os.Environ(), faultsEnv+"="+path, report.OutFile+"=")
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	if err := c.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Error(err)
			return nil
		}
	}
	return verdictsOf(output.String())
}

const running = "=== RUN   TestFaulty/"

// verdictsOf returns a verdict for each law and fault of which output has the run.
func verdictsOf(output string) map[string]string {
	verdicts := map[string]string{}
	for _, part := range strings.Split(output, running)[1:] {
		name, text, _ := strings.Cut(part, "\n")
		text, _, _ = strings.Cut(text, "conformance of wrapped:") // the account has the text of all failures
		if fault, subtest, ok := strings.Cut(name, "/"); ok {
			verdicts[subtest+" "+fault] = verdict(output, text, "TestFaulty/"+name)
		}
	}
	return verdicts
}

// verdict returns whether a law caught its fault. text is the output of its run.
func verdict(output, text, test string) string {
	failed := strings.Contains(output, "--- FAIL: "+test+" ")
	for _, crash := range []string{"\npanic: ", "\nfatal error: ", "DATA RACE", "The test panicked: ", "The test hangs: ", "have not ended with the test"} {
		if strings.Contains(text, crash) {
			return "crashed:\n" + text
		}
	}
	switch {
	case failed && strings.Contains(text, "conformance test "):
		return caught
	case failed:
		return "failed, but not by its assertion:\n" + text
	case strings.Contains(output, "--- PASS: "+test+" "):
		return unnoticed
	}
	return "did not run:\n" + text
}

// TestFaulty runs in the processes that TestFaults starts. All laws of a trial run, even
// after a basic law has failed.
func TestFaulty(t *testing.T) {
	path := os.Getenv(faultsEnv)
	if path == "" {
		t.Skip("see TestFaults")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var trials []faultTrial
	if err := json.Unmarshal(text, &trials); err != nil {
		t.Fatal(err)
	}
	for _, trial := range trials {
		f, ok := faults.Find(trial.Fault)
		if !ok {
			t.Fatalf("no fault %q", trial.Fault)
		}
		s := faultySuite(f)
		o := s.options()
		o.Whole = true
		t.Run(f.Name, func(t *testing.T) {
			runner.Run(t, o, slices.DeleteFunc(laws.All(), func(l law.Law) bool { return !slices.Contains(trial.Laws, l.Subtest()) }))
		})
	}
}

// faultySuite returns a suite whose backend or bus has the fault.
func faultySuite(f faults.Fault) Suite {
	s := fake(good, good)
	switch {
	case f.Driver:
		s = fake(good, f.Wrap)
	case !f.OfBus():
		s = fake(f.Wrap, good)
	}
	if f.OfBus() {
		s.Bus = func(t *testing.T, b backend.Backend, o eventbus.Options) Bus { return f.Bus(t, b, o) }
	}
	return s
}

// TestEveryLawHasPromiseAndFault checks that every law has a promise and a fault, and that a
// law names every fault.
func TestEveryLawHasPromiseAndFault(t *testing.T) {
	all, named := map[string]bool{}, map[string]bool{}
	for _, l := range laws.All() {
		if all[l.Subtest()] {
			t.Errorf("two laws are called %s", l.Subtest())
		}
		all[l.Subtest()] = true
		if l.Promise == "" || l.Test == nil || len(l.Faults) == 0 {
			t.Errorf("law %s lacks a promise, a test or a fault", l.Subtest())
		}
		for _, name := range l.Faults {
			if _, ok := faults.Find(name); !ok {
				t.Errorf("law %s: no fault %q", l.Subtest(), name)
			}
			named[name] = true
		}
	}
	found := map[string]bool{}
	for _, f := range faults.All() {
		if found[f.Name] {
			t.Errorf("two faults are called %s", f.Name)
		}
		if found[f.Name] = true; !named[f.Name] {
			t.Errorf("fault %s fails no law", f.Name)
		}
	}
}
