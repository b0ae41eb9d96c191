package report

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/seed41896749/eventbus/conformance/internal/law"
)

// A Result is the result of one law.
type Result string

// The results of a law. NotClaimed: the backend lacks a verb or a limit that the law needs.
// Weaker: Suite.Weaker has a reason why the broker cannot keep the law, so it did not run.
// Engine: the law tests the engine alone and did not run, because Suite.Engine is not set.
const (
	Pass       Result = "pass"
	Fail       Result = "fail"
	NotClaimed Result = "not claimed"
	Weaker     Result = "weaker"
	Engine     Result = "engine"
)

// OutFile is the environment variable that names a file. The suite appends one line to this
// file for each law: its result as a JSON object.
const OutFile = "EVENTBUS_CONFORMANCE_OUT"

// Note adds the result of a law to the account and to the file of [OutFile]. t is nil if
// the process is about to end. Otherwise Note fails t if it cannot write the file.
func (a *Account) Note(t *testing.T, l law.Law, r Result, why string) {
	a.add(l, r, why)
	if r == Fail {
		why = "" // go test shows it
	}
	path := os.Getenv(OutFile)
	if path == "" {
		return
	}
	line, err := json.Marshal(struct {
		Backend string `json:"backend"`
		ID      string `json:"id"`
		Name    string `json:"name"`
		Promise string `json:"promise"`
		Result  Result `json:"result"`
		Why     string `json:"why,omitempty"`
		Some    bool   `json:"some,omitempty"` // the suite runs some laws only
	}{a.backend, l.ID, l.Name, l.Promise, r, why, a.some})
	if err == nil {
		err = appendLine(path, line)
	}
	if err != nil && t != nil {
		t.Errorf("report: %v", err)
	}
}

// appendLine appends line in one write, so that processes that test other packages at the
// same time do not mix their lines.
func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
