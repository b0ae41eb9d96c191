package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/conformance/internal/badbackend"
	"github.com/seed41896749/eventbus/conformance/internal/badbus"
	"github.com/seed41896749/eventbus/conformance/internal/law"
	"github.com/seed41896749/eventbus/conformance/internal/laws"
	"github.com/seed41896749/eventbus/conformance/internal/report"
	"github.com/seed41896749/eventbus/conformance/internal/runner"
)

// saboteurEnv is the environment variable that tells a process of TestTeeth the name of its
// saboteur.
const saboteurEnv = "EVENTBUS_SABOTEUR"

// TestTeeth checks that every law can fail. For each saboteur it starts a process, which
// breaks a backend or a bus by the saboteur. The process tests the laws that name the
// saboteur. Each law must fail by its own assertion, not by a crash or a timeout.
func TestTeeth(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a process for each saboteur")
	}
	names := slices.Sorted(slices.Values(saboteurs()))
	if unique := slices.Compact(slices.Clone(names)); len(unique) < len(names) {
		t.Fatalf("saboteurs share a name: %v", names)
	}
	verdicts := map[string]string{} // a key has a law and a saboteur
	var mu sync.Mutex
	var wg sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for _, name := range names {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			victims := slices.DeleteFunc(laws.All(), func(l law.Law) bool { return !slices.Contains(l.Saboteurs, name) })
			output := sabotaged(t, name, victims)
			mu.Lock()
			defer mu.Unlock()
			for _, l := range victims {
				verdicts[l.Subtest()+name] = verdict(output, l)
			}
		})
	}
	wg.Wait()
	var table strings.Builder
	for _, l := range laws.All() {
		for _, name := range l.Saboteurs {
			v := verdicts[l.Subtest()+name]
			fmt.Fprintf(&table, "%-28s %-26s %s\n", l.Subtest(), name, v)
			if v != caught {
				t.Errorf("law %s, saboteur %s: %s", l.Subtest(), name, v)
			}
		}
	}
	t.Logf("law × saboteur\n%s", &table)
}

const caught = "caught"

// saboteurs returns the names of all saboteurs of the backend and of the bus.
func saboteurs() (names []string) {
	for _, s := range badbackend.All() {
		names = append(names, s.Name)
	}
	for _, s := range badbus.All() {
		names = append(names, s.Name)
	}
	return names
}

// saboteur returns a suite whose backend or bus the named saboteur breaks.
func saboteur(name string) (Suite, bool) {
	if s, ok := badbackend.Find(name); ok {
		if s.Driver() {
			return fake(good, s.Wrap), true
		}
		return fake(s.Wrap, good), true
	}
	s, ok := badbus.Find(name)
	suite := fake(good, good)
	suite.Bus = func(t *testing.T, b backend.Backend, o eventbus.Options) Bus { return s.New(t, b, o) }
	return suite, ok
}

// sabotaged tests the laws victims in a process of the saboteur, and returns the output of
// the process.
func sabotaged(t *testing.T, saboteur string, victims []law.Law) string {
	if len(victims) == 0 {
		return ""
	}
	var names []string
	for _, l := range victims {
		names = append(names, regexp.QuoteMeta(l.Subtest()))
	}
	self, err := os.Executable()
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, self, "-test.v", "-test.run=^TestSabotaged$/^("+strings.Join(names, "|")+")$")
	c.Env = append(os.Environ(), saboteurEnv+"="+saboteur, report.OutFile+"=")
	var output bytes.Buffer
	c.Stdout, c.Stderr = &output, &output
	if err := c.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			return err.Error()
		}
	}
	return output.String()
}

// verdict returns whether the law caught its saboteur, by the output of the process.
func verdict(output string, l law.Law) string {
	failed := strings.Contains(output, "--- FAIL: TestSabotaged/"+l.Subtest()+" ")
	asserted := strings.Contains(output, "law: "+l.ID+" "+l.Name+": ")
	for _, crash := range []string{"\npanic: ", "\nfatal error: ", "DATA RACE", "The law panicked: ", "The law hangs: ", "have not ended with the law"} {
		if strings.Contains(output, crash) {
			return "crashed:\n" + output
		}
	}
	switch {
	case failed && asserted:
		return caught
	case failed:
		return "failed, but not by its assertion:\n" + output
	case strings.Contains(output, "--- PASS: TestSabotaged/"+l.Subtest()+" "):
		return "NOT NOTICED"
	}
	return "did not run:\n" + output
}

// TestSabotaged runs in the processes that TestTeeth starts. All laws that name the
// saboteur run, even after a basic law has failed.
func TestSabotaged(t *testing.T) {
	name := os.Getenv(saboteurEnv)
	if name == "" {
		t.Skip("see TestTeeth")
	}
	s, ok := saboteur(name)
	if !ok {
		t.Fatalf("no saboteur %q", name)
	}
	o := s.options()
	o.Whole = true
	runner.Run(t, o, laws.All())
}

// TestEveryLawHasPromiseAndSaboteur checks that every law has a promise and a saboteur, and
// that a law names every saboteur.
func TestEveryLawHasPromiseAndSaboteur(t *testing.T) {
	all, named := map[string]bool{}, map[string]bool{}
	for _, l := range laws.All() {
		if all[l.Subtest()] {
			t.Errorf("two laws are called %s", l.Subtest())
		}
		all[l.Subtest()] = true
		if l.Promise == "" || l.Test == nil || len(l.Saboteurs) == 0 {
			t.Errorf("law %s lacks a promise, a test or a saboteur", l.Subtest())
		}
		for _, name := range l.Saboteurs {
			if !slices.Contains(saboteurs(), name) {
				t.Errorf("law %s: no saboteur %q", l.Subtest(), name)
			}
			named[name] = true
		}
	}
	for _, name := range saboteurs() {
		if !named[name] {
			t.Errorf("saboteur %s breaks no law", name)
		}
	}
}
