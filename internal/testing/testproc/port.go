// Package testproc has what processes of brokers that are started by tests need:
// a port of their own, and an end.
package testproc

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are chosen below those that systems give to outgoing connections, so that
// no client takes the port of a server that is being restarted.
const (
	firstPort = 10000
	lastPort  = 21999
)

var (
	portsMu sync.Mutex
	ports   = map[int]bool{} // given to a server of this process
)

// Port chooses a port of the loopback that nobody listens on, nor on those that
// are so much further up. It is given out once. Another process may take it all
// the same: a server that is asked must be known to be the one that was started.
func Port(further ...int) (int, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	// At random, so that processes which choose at the same time seldom meet.
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
