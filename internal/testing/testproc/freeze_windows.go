package testproc

import "syscall"

// Windows has no signals that freeze a process, so os.Process.Signal refuses these.
const (
	Freeze = syscall.Signal(0x13)
	Thaw   = syscall.Signal(0x12)
)
