package redistest

import (
	"os/exec"
	"syscall"
)

// startBound starts a process that the system kills when this one ends, however
// it does.
func startBound(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Start()
}
