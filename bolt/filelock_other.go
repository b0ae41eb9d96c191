//go:build !unix || solaris || aix || android

package bolt

import "os"

// unlockAndClose closes a file that bbolt cannot close, because a panic has interrupted it. Here that
// ends the lock of the file.
func unlockAndClose(f *os.File) error { return f.Close() }
