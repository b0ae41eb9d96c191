//go:build unix && !solaris && !aix && !android

package bolt

import (
	"os"
	"syscall"
)

// unlockAndClose closes a file that bbolt cannot close, because a panic has interrupted it. Its pages stay
// mapped, so the lock of the file would outlive the descriptor.
func unlockAndClose(f *os.File) error {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	return f.Close()
}
