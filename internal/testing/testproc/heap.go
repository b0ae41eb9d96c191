package testproc

import "runtime"

// HeapInUse returns the bytes of live memory of this process.
func HeapInUse() int {
	runtime.GC()
	runtime.GC() // a sync.Pool is empty after two collections
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
