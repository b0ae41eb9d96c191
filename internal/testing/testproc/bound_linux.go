package testproc

import (
	"os/exec"
	"syscall"
)

// Start starts a process that the system kills when this one ends, however
// it does.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Start()
}
