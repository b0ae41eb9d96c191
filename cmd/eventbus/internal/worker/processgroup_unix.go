//go:build unix

package worker

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A processGroup is a command's own process group. With it, Ctrl-C in the terminal reaches only this process, which then
// waits for the command.
type processGroup struct {
	cmd    *exec.Cmd
	killer *time.Timer   // runs from SIGTERM to SIGKILL
	killed chan struct{} // closed after that SIGKILL
}

func newProcessGroup(cmd *exec.Cmd) *processGroup {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return &processGroup{cmd: cmd}
}

// terminate is called at most once, while the command runs.
func (g *processGroup) terminate() error {
	g.killed = make(chan struct{})
	g.killer = time.AfterFunc(grace, func() {
		_ = g.signal(syscall.SIGKILL)
		close(g.killed)
	})
	return g.signal(syscall.SIGTERM)
}

// end is called after the command has ended. After a SIGTERM it waits for the rest of the group, at most for the grace.
// Otherwise, with kill, it kills the rest.
func (g *processGroup) end(kill bool) {
	switch {
	case g.killer != nil:
		g.wait()
		g.killer.Stop()
	case kill && g.cmd.Process != nil:
		_ = g.signal(syscall.SIGKILL) // the group may be empty
	}
}

// wait waits until the group is empty or killed. It polls, because the processes are not
// children of this one. A zombie counts until it is reaped.
func (g *processGroup) wait() {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for g.signal(0) == nil {
		select {
		case <-poll.C:
		case <-g.killed:
			return
		}
	}
}

func (g *processGroup) signal(s syscall.Signal) error {
	err := syscall.Kill(-g.cmd.Process.Pid, s)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
