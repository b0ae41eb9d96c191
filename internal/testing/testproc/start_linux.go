package testproc

import (
	"os/exec"
	"syscall"
)

// Start starts a process that the system kills when the calling process ends in any way. It
// keeps other attributes of cmd, such as a Credential.
func Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return cmd.Start()
}
