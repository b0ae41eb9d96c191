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

// StartConfigured starts a server with the text of a configuration file, such as
// users and TLS, which ends with the test. [Server.Configure] changes the text.
func StartConfigured(t testing.TB, text string) *Server {
	t.Helper()
	s := newServer(t)
	s.args = []string{"-c", filepath.Join(s.dir, "nats.conf")}
	s.Configure(text)
	return s
}

// Configure starts a server, or starts it again, with the text of a
// configuration file in place of the one it had, and returns when it serves
// clients, whether or not they need to be known to it.
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

// Reload lets a server that was started with [StartConfigured] go on with another
// text. What changes and what does not is the server's to say.
func (s *Server) Reload(text string) {
	s.t.Helper()
	s.write(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		s.t.Fatalf("natstest: %v", err)
	}
}

// write writes the file. Its name stands there too, since no reload may change it.
func (s *Server) write(text string) {
	s.t.Helper()
	text = "server_name: " + s.name + "\n" + text
	if err := os.WriteFile(filepath.Join(s.dir, "nats.conf"), []byte(text), 0o600); err != nil {
		s.t.Fatalf("natstest: %v", err)
	}
}

// greets reports whether the server, and not another on its port, tells whoever
// connects, before it asks who that is, that it has JetStream.
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
