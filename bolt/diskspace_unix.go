//go:build linux || darwin

package bolt

import "syscall"

// diskSpace returns the size in bytes of the disk that holds a file, and how much of it is free
// for this user. ok is false if the system cannot say.
func diskSpace(path string) (free, total int64, ok bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, 0, false
	}
	size := int64(s.Bsize)
	return int64(s.Bavail) * size, int64(s.Blocks) * size, true
}
