//go:build !unix

package shell

import "os/exec"

// A group is the command alone on systems without process groups.
type group struct{ cmd *exec.Cmd }

func newGroup(cmd *exec.Cmd) *group { return &group{cmd} }

func (g *group) terminate() error { return g.cmd.Process.Kill() }

func (g *group) end(bool) {}
