//go:build !linux

package testproc

import (
	"os"
	"os/exec"
	"strconv"
	"sync"
)

var (
	heldMu sync.Mutex
	held   []*os.File // this process's ends of the pipes, kept open
)

// Start starts a process, and a shell that kills the process when the calling process ends
// in any way. The shell reads a pipe whose other end only the calling process has.
func Start(cmd *exec.Cmd) error {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	if err := cmd.Start(); err != nil {
		ours.Close()
		return err
	}
	watch := exec.Command("/bin/sh", "-c", `read _; kill -9 "$1"`, "watch", strconv.Itoa(cmd.Process.Pid))
	watch.Stdin = theirs
	if err := watch.Start(); err != nil {
		ours.Close()
		return err
	}
	heldMu.Lock()
	defer heldMu.Unlock()
	held = append(held, ours)
	return nil
}
