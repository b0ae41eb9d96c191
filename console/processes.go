package console

import (
	"context"
	"net/http"

	"github.com/seed41896749/eventbus/presence"
)

// A processesPage is the page of the processes that announce themselves.
type processesPage struct {
	Processes []presence.Process
	More      int // processes that are not shown
	Failure   *failure
}

const maxProcesses = 200

func (c *console) processes(w http.ResponseWriter, r *http.Request) {
	body, code := &processesPage{}, http.StatusOK
	all, err := c.announced(r.Context())
	if err != nil {
		var f failure
		code, f = failureOf(err)
		body.Failure = &f
	}
	body.More = max(len(all)-maxProcesses, 0)
	body.Processes = all[:len(all)-body.More]
	c.render(w, r, code, "processes", &page{Title: "Processes", Live: true, Figures: c.sampler.Look(r.Context()), Body: body})
}

// announced returns the processes that have a heartbeat on the broker.
func (r *reader) announced(ctx context.Context) ([]presence.Process, error) {
	return readShared(ctx, r, "processes", func(ctx context.Context) ([]presence.Process, error) {
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		return presence.Processes(ctx, r.backend)
	})
}
