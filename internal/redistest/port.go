package redistest

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
	busOffset = 10000 // a node of a cluster listens there too
)

var (
	portsMu sync.Mutex
	ports   = map[int]bool{} // given to a server of this process
)

// freePort chooses a port that nobody listens on, at random, so that processes
// which choose at the same time seldom meet.
func freePort(clustered bool) (int, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if ports[port] || !free(port) || clustered && !free(port+busOffset) {
			continue
		}
		ports[port] = true
		return port, nil
	}
	return 0, errors.New("redistest: no free port")
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
