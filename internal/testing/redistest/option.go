package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// settings say how to start a server.
type settings struct {
	args      []string
	lines     []string // more lines of the configuration file
	noAOF     bool
	socket    bool
	socketDir string
	tls       bool
	certs     *Certs
	pair      Pair
	clustered bool
	sentinel  bool
	shared    bool
}

// Option changes how a server is started.
type Option func(*settings)

// Args adds command-line arguments, such as --maxmemory 10mb.
func Args(args ...string) Option {
	return func(s *settings) { s.args = append(s.args, args...) }
}

// TLS makes the server accept TLS only. It has its own certificates and requires client
// certificates; see [Server.Certificates].
func TLS() Option {
	return func(s *settings) { s.tls = true }
}

// TLSWith is like TLS, but the server uses the certificate given by server, one of the
// certificates of c, such as an expired one.
func TLSWith(c *Certs, server Pair) Option {
	return func(s *settings) { s.tls, s.certs, s.pair = true, c, server }
}

// Socket lets the server listen on a unix socket too; see [Server.Socket].
func Socket() Option {
	return func(s *settings) { s.socket = true }
}

// WithoutAOF makes the server lose its data at a restart.
func WithoutAOF() Option {
	return func(s *settings) { s.noAOF = true }
}

// lines adds lines to the configuration.
func lines(l ...string) Option {
	return func(s *settings) { s.lines = append(s.lines, l...) }
}

// configure writes the configuration file. If tests may add ACL users to the server, it
// also writes an empty file for them. The settings are in a file, not in arguments, because
// sentinels rewrite it.
func (p *process) configure() error {
	conf := []string{"bind 127.0.0.1", "protected-mode no", `dir "` + p.dir + `"`}
	if p.tls {
		conf = append(conf, "port 0", fmt.Sprintf("tls-port %d", p.port),
			"tls-auth-clients yes", `tls-ca-cert-file "`+p.certs.CA+`"`,
			`tls-cert-file "`+p.pair.Cert+`"`, `tls-key-file "`+p.pair.Key+`"`)
	} else {
		conf = append(conf, fmt.Sprintf("port %d", p.port))
	}
	if p.socket {
		conf = append(conf, `unixsocket "`+filepath.Join(p.socketDir, "redis.sock")+`"`)
	}
	if !p.sentinel {
		conf = append(conf, `save ""`, "auto-aof-rewrite-percentage 0")
		if !p.noAOF {
			// Redis writes to the file before it answers, so a killed process loses nothing
			// that it has confirmed. With everysec, writes wait for up to two seconds if the
			// disk is slow.
			conf = append(conf, "appendonly yes", "appendfsync no")
		}
	}
	if !p.sentinel && p.password() == "" && !p.shared {
		users := filepath.Join(p.dir, "users.acl")
		conf = append(conf, `aclfile "`+users+`"`)
		if err := os.WriteFile(users, nil, 0o600); err != nil {
			return fmt.Errorf("redistest: %w", err)
		}
	}
	conf = append(conf, p.lines...)
	if err := os.WriteFile(filepath.Join(p.dir, "redis.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("redistest: %w", err)
	}
	return nil
}

// password returns the password that Args sets for all clients, if any.
func (p *process) password() string {
	if i := slices.Index(p.args, "--requirepass"); i >= 0 && i+1 < len(p.args) {
		return p.args[i+1]
	}
	return ""
}
