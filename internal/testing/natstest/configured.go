package natstest

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// StartConfigured starts a server with text as its configuration file, for users and TLS. It
// ends with the test. [Server.Configure] changes the text.
func StartConfigured(t testing.TB, text string) *Server {
	t.Helper()
	s := newServer(t)
	s.args = []string{"-c", filepath.Join(s.dir, "nats.conf")}
	s.Configure(text)
	return s
}

// Configure restarts the server with another text of its configuration file. It returns
// when the server accepts connections, even if it requires a login.
func (s *Server) Configure(text string) {
	s.t.Helper()
	s.Kill()
	s.write(text)
	s.start()
	for deadline := time.Now().Add(startLimit); !s.greets(); <-time.After(10 * time.Millisecond) {
		if !s.alive() || time.Now().After(deadline) {
			s.t.Fatalf("natstest: the server on port %d does not serve; its log:\n%s", s.port, s.tail())
		}
	}
}

// Reload makes a running server of [StartConfigured] load another text without a restart. The
// server decides which settings a reload can change.
func (s *Server) Reload(text string) {
	s.t.Helper()
	s.write(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatalf("natstest: %v", err)
	}
}

// write writes the configuration file. It adds the name of the server, because the name
// must stay the same at a reload.
func (s *Server) write(text string) {
	s.t.Helper()
	text = "server_name: " + s.name + "\n" + text
	if err := os.WriteFile(filepath.Join(s.dir, "nats.conf"), []byte(text), 0o600); err != nil {
		s.t.Fatalf("natstest: %v", err)
	}
}

// greets reports whether this server, not another one on its port, announces JetStream to
// a new connection, before any login.
func (s *Server) greets() bool {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	var info struct {
		Name      string `json:"server_name"`
		JetStream bool   `json:"jetstream"`
	}
	text, greeting := strings.CutPrefix(line, "INFO ")
	return err == nil && greeting && json.Unmarshal([]byte(text), &info) == nil && info.JetStream && info.Name == s.name
}

func (s *Server) alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}
