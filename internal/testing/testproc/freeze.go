//go:build !windows

package testproc

import "syscall"

// The signals that freeze a process, and let it continue.
const (
	Freeze = syscall.SIGSTOP
	Thaw   = syscall.SIGCONT
)
