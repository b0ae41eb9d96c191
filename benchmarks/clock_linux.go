package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf returns the CPU time that a process has used, or 0 if it cannot read it. The clock
// of the process is more exact than the times in /proc.
func cpuOf(pid int) time.Duration {
	var t unix.Timespec
	if pid == 0 || unix.ClockGettime(int32(^pid)<<3|2, &t) != nil { // the ID of the clock CPUCLOCK_SCHED of the process
		return 0
	}
	return time.Duration(t.Nano())
}
