package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf returns the CPU time of a process, which is more exact than /proc, or 0.
func cpuOf(pid int) time.Duration {
	var t unix.Timespec
	if pid == 0 || unix.ClockGettime(int32(^pid)<<3|2, &t) != nil { // CPUCLOCK_SCHED of the process
		return 0
	}
	return time.Duration(t.Nano())
}
