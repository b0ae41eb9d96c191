//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
)

// The test's own binary is the service if this variable is set.
const isService = "EVENTBUS_TEST_IS_SERVICE"

func TestMain(m *testing.M) {
	if os.Getenv(isService) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A service is the process under test. Its output outlives it.
type service struct {
	t       *testing.T
	url     string // of the broker
	address string
	ledger  *os.File
	cmd     *exec.Cmd
}

func newService(t *testing.T, url string) *service {
	ledger, err := os.OpenFile(filepath.Join(t.TempDir(), "ledger"), os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	s := &service{t: t, url: url, address: l.Addr().String(), ledger: ledger}
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
		ledger.Close()
	})
	return s
}

func (s *service) start(args ...string) {
	self, err := os.Executable()
	require.NoError(s.t, err)
	s.cmd = exec.CommandContext(s.t.Context(), self, append([]string{"-url", s.url, "-http", s.address}, args...)...)
	s.cmd.Env = append(os.Environ(), isService+"=1")
	s.cmd.Stdout = s.ledger
	require.NoError(s.t, s.cmd.Start())
	s.await("it serves", func() bool { return s.call("GET", "/metrics", "") != "" })
}

func (s *service) kill() {
	require.NoError(s.t, s.cmd.Process.Kill())
	_ = s.cmd.Wait() // killed
}

// stop ends the service in good order.
func (s *service) stop() {
	require.NoError(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(s.t, s.cmd.Wait())
}

// call returns the body of a 200 response, or "".
func (s *service) call(method, path, body string) string {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+s.address+path, strings.NewReader(body))
	require.NoError(s.t, err)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// order places an order, and again until it is accepted.
func (s *service) order(id string, cents int) {
	s.await("an order is accepted", func() bool {
		return s.call("POST", "/orders", fmt.Sprintf(`{"ID":%q,"Cents":%d}`, id, cents)) != ""
	})
}

// count returns how often the ledger says this of an order.
func (s *service) count(what, id string) int {
	text, err := os.ReadFile(s.ledger.Name())
	require.NoError(s.t, err)
	return strings.Count(string(text), what+" "+id+"\n")
}

func (s *service) await(what string, f func() bool) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); !f(); {
		if time.Now().After(end) {
			s.t.Fatalf("never: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Every accepted order is billed and mailed, though the service is killed twice. An order
// that the bank has declined is billed after a redrive, and not mailed again.
func TestOrders(t *testing.T) {
	for name, url := range map[string]func(*testing.T) string{
		"redis": func(t *testing.T) string { return redistest.Start(t).URL() },
		"nats":  func(t *testing.T) string { return natstest.Start(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, url(t))
			s.start()
			const orders = 120
			for i := range orders {
				switch id := fmt.Sprint("o-", i); {
				case i%10 == 0:
					s.order(id, 20_000) // declined
				default:
					s.order(id, 1_000+i%10) // an order with a 7 is billed at the third attempt
				}
				if i == 40 || i == 80 {
					s.kill()
					s.start()
				}
			}
			require.NotEmpty(t, s.call("POST", "/cancellations", `{"ID":"o-1"}`))
			s.await("all are billed, or declined, and mailed", func() bool {
				for i := range orders {
					id := fmt.Sprint("o-", i)
					if s.count("mailed", id) == 0 || i%10 > 0 && s.count("charged", id) == 0 {
						return false
					}
				}
				return s.count("refunded", "o-1") > 0
			})
			require.Regexp(t, `eventbus_attempts_total{error_type="declined",.*eventbus_outcome="dead-letter"`, s.call("GET", "/metrics", ""))
			time.Sleep(3 * time.Second) // an order that a killed process mailed is redelivered after its lease
			s.stop()
			mailed := 0
			for i := 0; i < orders; i += 10 {
				id := fmt.Sprint("o-", i)
				require.Zero(t, s.count("charged", id))
				mailed += s.count("mailed", id)
			}

			s.start("-limit", "50000")
			redriven := 0
			s.await("the declined orders are redriven and billed", func() bool {
				var report struct{ Redriven int }
				if json.Unmarshal([]byte(s.call("POST", "/redrive", "")), &report) != nil {
					return false
				}
				redriven += report.Redriven
				for i := 0; i < orders; i += 10 {
					if s.count("charged", fmt.Sprint("o-", i)) == 0 {
						return false
					}
				}
				return true
			})
			require.Positive(t, redriven)
			s.stop()
			for i := 0; i < orders; i += 10 {
				mailed -= s.count("mailed", fmt.Sprint("o-", i))
			}
			require.Zero(t, mailed, "the mail group got redriven orders")
		})
	}
}

// A malformed order is the client's mistake, so the client must not try again.
func TestMalformedOrderIsABadRequest(t *testing.T) {
	w := httptest.NewRecorder()
	take(nil, eventbus.Topic[order]{})(w, httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("{")))
	require.Equal(t, http.StatusBadRequest, w.Code)
}
