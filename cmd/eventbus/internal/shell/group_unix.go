//go:build unix

package shell

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A group is a command's own process group. So Ctrl-C in the terminal reaches only this
// process, which then waits for the command.
type group struct {
	cmd    *exec.Cmd
	killer *time.Timer // runs from SIGTERM to SIGKILL
}

func newGroup(cmd *exec.Cmd) *group {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return &group{cmd: cmd}
}

// terminate is called at most once, while the command runs.
func (g *group) terminate() error {
	g.killer = time.AfterFunc(grace, func() { _ = g.signal(syscall.SIGKILL) })
	return g.signal(syscall.SIGTERM)
}

// end stops the timer after the command has ended. With kill it kills the rest of the
// group.
func (g *group) end(kill bool) {
	if g.killer != nil {
		g.killer.Stop()
	}
	if kill && g.cmd.Process != nil {
		_ = g.signal(syscall.SIGKILL) // the group may be empty
	}
}

func (g *group) signal(s syscall.Signal) error {
	err := syscall.Kill(-g.cmd.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
