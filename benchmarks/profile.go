package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
)

// A profile covers the measured parts only. It writes a file of CPU samples for each
// trial, which pprof can merge, and two files of allocations, from before and after the
// last trial. Its zero value writes nothing.
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

// begin is called at the begin of the measured part of a trial.
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

// end is called at the end of the measured part of a trial.
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
	runtime.GC() // the profile lags one collection behind
	f, err := os.Create(p.allocFile + suffix)
	if err != nil {
		p.failed = errors.Join(p.failed, err)
		return
	}
	p.failed = errors.Join(p.failed, pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
