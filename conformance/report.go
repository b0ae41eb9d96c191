package conformance

import (
	"encoding/json"
	"os"
	"testing"
)

// What a law can come to.
const (
	pass       = "pass"
	fail       = "fail"
	notClaimed = "not claimed"
	weaker     = "weaker"
)

// outFile is the environment variable that names the file to which results are
// appended, one JSON object in a line for each law.
const outFile = "EVENTBUS_CONFORMANCE_OUT"

// report notes what a law came to. Without a t the process is about to end.
func (r *runner) report(t *testing.T, l law, result, why string) {
	r.account.add(l, result, why)
	if result == fail {
		why = "" // go test shows it
	}
	path := os.Getenv(outFile)
	if path == "" {
		return
	}
	line, err := json.Marshal(struct {
		Backend string `json:"backend"`
		ID      string `json:"id"`
		Name    string `json:"name"`
		Promise string `json:"promise"`
		Result  string `json:"result"`
		Why     string `json:"why,omitempty"`
		Some    bool   `json:"some,omitempty"` // the suite runs some laws only
	}{r.Name, l.id, l.name, l.promise, result, why, r.Only != nil})
	if err == nil {
		err = appendLine(path, line)
	}
	if err != nil && t != nil {
		t.Errorf("report: %v", err)
	}
}

// appendLine writes the line at once, so that packages tested at the same time
// do not write into each other's.
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
