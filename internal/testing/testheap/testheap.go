// Package testheap measures the memory that a test leaves in use.
package testheap

import "runtime"

// InUse returns the bytes of live memory of the process.
func InUse() int {
	runtime.GC()
	runtime.GC() // a sync.Pool is empty after two collections
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
