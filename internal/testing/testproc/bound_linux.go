package testproc

import (
	"os/exec"
	"syscall"
)

// Start starts a process that the system kills when the calling process ends in any way.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Start()
}
