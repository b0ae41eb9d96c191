//go:build !unix

package worker

import "os/exec"

// A processGroup is the command alone on systems without process groups.
type processGroup struct{ cmd *exec.Cmd }

func newProcessGroup(cmd *exec.Cmd) *processGroup { return &processGroup{cmd} }

func (g *processGroup) terminate() error { return g.cmd.Process.Kill() }

func (g *processGroup) end(bool) {}
