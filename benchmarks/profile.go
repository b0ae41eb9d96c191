package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
)

// A profile is written of what is measured and nothing else: a file of CPU samples
// for each trial, which pprof takes together, and two of allocations, from before
// and after the last trial. Its zero value writes nothing.
type profile struct {
	cpuFile, allocFile string

	mu     sync.Mutex
	trials int
	cpu    *os.File
	failed error
}

func newProfile(cpuFile, allocFile string) *profile {
	if allocFile != "" {
		runtime.MemProfileRate = 1
	}
	return &profile{cpuFile: cpuFile, allocFile: allocFile}
}

// begin is called where a trial begins to count.
func (p *profile) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trials++
	p.allocs(".before")
	if p.cpuFile == "" {
		return
	}
	var err error
	if p.cpu, err = os.Create(fmt.Sprintf("%s.%d", p.cpuFile, p.trials)); err == nil {
		err = pprof.StartCPUProfile(p.cpu)
	}
	p.failed = errors.Join(p.failed, err)
}

// end is called where it has counted.
func (p *profile) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cpu != nil {
		pprof.StopCPUProfile()
		p.failed = errors.Join(p.failed, p.cpu.Close())
		p.cpu = nil
	}
	p.allocs("")
}

func (p *profile) allocs(suffix string) {
	if p.allocFile == "" {
		return
	}
	runtime.GC() // or what was allocated last is not in it
	f, err := os.Create(p.allocFile + suffix)
	if err != nil {
		p.failed = errors.Join(p.failed, err)
		return
	}
	p.failed = errors.Join(p.failed, pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
