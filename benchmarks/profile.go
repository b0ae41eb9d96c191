package main

import (
	"errors"
	"os"
	"runtime"
	"runtime/pprof"
)

// A profile is written while the suite runs. Its zero value writes nothing.
type profile struct {
	cpu       *os.File
	allocFile string
}

func startProfile(cpuFile, allocFile string) (p profile, err error) {
	if p.allocFile = allocFile; allocFile != "" {
		runtime.MemProfileRate = 1
	}
	if cpuFile == "" {
		return p, nil
	}
	if p.cpu, err = os.Create(cpuFile); err != nil {
		return p, err
	}
	return p, pprof.StartCPUProfile(p.cpu)
}

func (p profile) stop() error {
	var err error
	if p.cpu != nil {
		pprof.StopCPUProfile()
		err = p.cpu.Close()
	}
	if p.allocFile == "" {
		return err
	}
	f, err2 := os.Create(p.allocFile)
	if err2 != nil {
		return errors.Join(err, err2)
	}
	return errors.Join(err, pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}
