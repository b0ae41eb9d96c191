// Package testproc is for tests that deal with processes: it finds free ports, starts brokers
// that end with the process of the test, freezes them, and measures the test's own heap.
package testproc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
)

// The ports are below the range of outgoing connections, so that no client takes the port
// of a server that is restarting.
const (
	firstPort = 10000
	lastPort  = 21999
)

var (
	portsMu sync.Mutex
	ports   = map[int]bool{} // the ports that Port has returned
)

// Port returns a free port of the loopback. For each distance in further, the port plus the
// distance is free too. Port never returns the same port again. Another process may still
// take the port, so a caller must check that its own server answers.
func Port(further ...int) (int, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	// The port is random, so that processes that choose at the same time rarely collide.
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		ok := !ports[port] && free(port)
		for _, n := range further {
			ok = ok && free(port+n)
		}
		if ok {
			ports[port] = true
			return port, nil
		}
	}
	return 0, errors.New("testproc: no free port")
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// HeapInUse returns the bytes of live memory of this process.
func HeapInUse() int {
	runtime.GC()
	runtime.GC() // a sync.Pool is empty after two collections
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
