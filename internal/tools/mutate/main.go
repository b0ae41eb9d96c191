// Command mutate asks whether the conformance tests would notice a mistake in a backend. It
// makes small changes to the code of a package, one at a time, and runs the package's
// conformance tests with each. A change that no test notices survives: then a promise has no
// test, or the changed code has no effect.
//
//	go run ./internal/tools/mutate [-budget 30m] [-seed N] [-only FILE:LINE] PACKAGE
//
// The changed file is compiled with go build's -overlay, so the source tree stays as it is.
// The report lists the survivors. Not each of them is a gap: some changes have no effect that
// a caller could see.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

func main() {
	var o options
	flag.DurationVar(&o.budget, "budget", 30*time.Minute, "how long to try mutants; they come in random order")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "how long the tests of one mutant may take; more is a mistake that was noticed")
	flag.StringVar(&o.run, "run", "^TestConformance$", "the tests to run")
	flag.StringVar(&o.only, "only", "", "only mutants of a file, or of a line such as topic.go:12")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().Unix()), "the order of the mutants")
	flag.Parse()
	if err := run(context.Background(), flag.Arg(0), o, os.Stdout); err != nil { //nolint:forbidigo // a program
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type options struct {
	budget, timeout time.Duration
	run, only       string
	seed            uint64
}

// A verdict is what became of a mutant.
type verdict int

const (
	survived verdict = iota
	killed           // a test failed, or did not end in time
	invalid          // it does not compile
)

// run tries the mutants of the package in the folder dir, and reports the survivors. It
// returns an error if the tests fail without any change.
func run(ctx context.Context, dir string, o options, w io.Writer) error {
	mutants, err := mutantsOf(dir)
	if err != nil {
		return err
	}
	if o.only != "" {
		mutants = only(mutants, o.only)
	}
	if len(mutants) == 0 {
		return errors.New("no mutants")
	}
	work, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if v, output := try(ctx, dir, filepath.Join(work, "none"), nil, o); v != survived {
		return fmt.Errorf("the tests fail without any change:\n%s", output)
	}
	r := rand.New(rand.NewPCG(o.seed, 0))
	r.Shuffle(len(mutants), func(i, j int) { mutants[i], mutants[j] = mutants[j], mutants[i] })
	counts := tryAll(ctx, dir, work, mutants, o, w)
	fmt.Fprintf(w, "%d of %d mutants tried with -seed %d: %d noticed, %d survived, %d do not compile\n",
		counts[killed]+counts[survived]+counts[invalid], len(mutants), o.seed, counts[killed], counts[survived], counts[invalid])
	return nil
}

// tryAll tries mutants, as many at a time as there are processors, until the budget is spent.
// It writes the survivors as it finds them.
func tryAll(ctx context.Context, dir, work string, mutants []mutant, o options, w io.Writer) map[verdict]int {
	counts := map[verdict]int{}
	next := make(chan mutant)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for m := range next {
				v, _ := try(ctx, dir, filepath.Join(work, fmt.Sprint(i)), &m, o)
				mu.Lock()
				if counts[v]++; v == survived {
					fmt.Fprintf(w, "survived: %v\n", m)
				}
				mu.Unlock()
			}
		})
	}
	end := time.After(o.budget)
	for _, m := range mutants {
		select {
		case next <- m:
			continue
		case <-end:
		}
		break
	}
	close(next)
	wg.Wait()
	return counts
}

// try runs the tests with the mutant m, or without a change if m is nil. It keeps its files
// in the folder work. It returns the output of the tests too.
func try(ctx context.Context, dir, work string, m *mutant, o options) (verdict, string) {
	if err := os.MkdirAll(work, 0o755); err != nil {
		return invalid, err.Error()
	}
	overlay := filepath.Join(work, "overlay.json")
	replace := map[string]string{}
	if m != nil {
		changed := filepath.Join(work, "mutant.go")
		if err := os.WriteFile(changed, m.source(), 0o600); err != nil {
			return invalid, err.Error()
		}
		replace[m.path] = changed
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	if err != nil {
		return invalid, err.Error()
	}
	binary := filepath.Join(work, "mutant.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, ".")
	build.Dir = dir
	if output, err := build.CombinedOutput(); err != nil {
		return invalid, string(output)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	test := exec.CommandContext(ctx, binary, "-test.run", o.run, "-test.failfast", "-test.timeout", o.timeout.String())
	test.Dir = dir
	output, err := test.CombinedOutput()
	switch {
	case err != nil:
		return killed, string(output)
	case strings.Contains(string(output), "no tests to run"):
		return killed, string(output)
	}
	return survived, string(output)
}
