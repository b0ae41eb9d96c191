package redistest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// ping checks that this process, not another one on its port, answers and has loaded its
// data.
func (p *process) ping() error {
	conn, err := net.DialTimeout("tcp", p.addr(), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if p.tls {
		// A test may give the server a bad certificate on purpose.
		config := p.certs.Config()
		config.InsecureSkipVerify = true
		conn = tls.Client(conn, config)
	}
	ask := "PING\r\nINFO server\r\n"
	if password := p.password(); password != "" {
		ask = "AUTH " + password + "\r\n" + ask
	}
	if _, err := conn.Write([]byte(ask)); err != nil {
		return err
	}
	var answer []byte
	pid := fmt.Sprintf("process_id:%d\r\n", p.cmd.Process.Pid)
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		answer = append(answer, buf[:n]...)
		switch text := string(answer); {
		case strings.HasPrefix(text, "-"):
			line, _, _ := strings.Cut(text, "\r")
			return errors.New(line)
		case strings.Contains(text, "+PONG") && strings.Contains(text, pid):
			return nil
		case strings.Contains(text, "\r\nlru_clock:"):
			return errors.New("another process answers")
		case err != nil:
			return err
		}
	}
}
