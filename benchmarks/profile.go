package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
)

// A profile profiles the measured parts of trials. For each trial it writes a file of CPU
// samples; pprof can merge these files. It also writes two files of allocations, from
// before and after the last trial. The zero profile writes nothing.
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

// begin starts the profile when the measured part of a trial begins.
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

// end ends the profile when the measured part of a trial ends.
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
	runtime.GC() // the profile of allocations has all allocations until the last collection
	f, err := os.Create(p.allocFile + suffix)
	if err != nil {
		p.failed = errors.Join(p.failed, err)
		return
	}
	p.failed = errors.Join(p.failed, pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
