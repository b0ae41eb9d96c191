package redisstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

// An inspection asks servers, each before its first use, whether they keep messages safely.
// It asks a server once: later topics on a server that failed get the same error, without
// another wait. Another inspection asks that server again.
type inspection struct {
	backend *Backend
	wire    *wire
	failed  map[*redis.Client]error // the key nil has the error of a Cluster without a topology
}

// topic inspects the server of the topic with this stream.
func (i *inspection) topic(ctx context.Context, stream string) error {
	node, err := i.backend.node(ctx, stream)
	if err != nil {
		node = nil
	} else if i.backend.sound(node) {
		return nil
	}
	if known := i.failed[node]; known != nil {
		return known
	}
	if err == nil {
		err = i.server(ctx, node)
	}
	if err != nil {
		if i.failed == nil {
			i.failed = map[*redis.Client]error{}
		}
		err = classOf(ctx, err, false) // an inspection changes nothing on the server
		i.failed[node] = err
	}
	return err
}

// server inspects one server.
func (i *inspection) server(ctx context.Context, node *redis.Client) error {
	return i.wire.do(ctx, func(ctx context.Context) error { return inspect(ctx, i.backend, node) })
}

// checkServers inspects all servers. It accepts servers that do not answer if another one
// does: their topics fail, and the first use of such a server inspects it.
func (b *Backend) checkServers(ctx context.Context) error {
	nodes, errs, err := b.eachServer(ctx, func(ctx context.Context, node *redis.Client) error { return inspect(ctx, b, node) })
	if err != nil {
		return classOf(ctx, err, false)
	}
	silent := 0
	for i := range nodes {
		if errs[i] == nil {
			continue
		}
		if isAnswer(errs[i]) || backend.Class(errs[i]) != nil {
			return classOf(ctx, errs[i], false)
		}
		silent++
		err = errs[i]
	}
	if silent == len(nodes) {
		return classOf(ctx, err, false)
	}
	return nil
}

// eachServer calls f for all servers at the same time. It returns the error of each.
func (b *broker) eachServer(ctx context.Context, f func(context.Context, *redis.Client) error) (nodes []*redis.Client, errs []error, err error) {
	err = b.with(ctx, func(w *wire) error {
		return w.do(ctx, func(ctx context.Context) (err error) {
			if nodes, err = b.masterNodes(ctx); err != nil {
				return err
			}
			errs = make([]error, len(nodes))
			var asked sync.WaitGroup
			for i, node := range nodes {
				asked.Go(func() { errs[i] = f(ctx, node) })
			}
			asked.Wait()
			return nil
		})
	})
	return nodes, errs, err
}

// inspect asks one server. It refuses a server with an unsuitable version or eviction
// policy. It notes a warning if the server has no append-only file, may forget marks, or
// does not tell its settings to the client.
func inspect(ctx context.Context, b *Backend, node *redis.Client) error {
	info, err := infoOf(ctx, node)
	if err != nil {
		return err
	}
	for _, f := range b.at(node, settingsOf(info)) {
		switch {
		case f.Severity < backend.SeverityError:
			b.warnings.warn(f.Text + "; " + f.Remedy)
		case f.Code != codeEvicts || !b.options.AllowEviction:
			return &backend.FindingError{Finding: f}
		}
	}
	b.detour(node).Store(true)
	return nil
}

// infoOf returns the settings and figures of a server, by section. It returns nil if this client may not ask.
func infoOf(ctx context.Context, node *redis.Client) (map[string]map[string]string, error) {
	info, err := node.InfoMap(ctx).Result()
	if redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "'info'") {
		return nil, nil // a denied SELECT is an error, because then all other commands are denied too
	}
	return info, err
}

// older reports whether version is before major.minor. It returns false for a version that
// it cannot read.
func older(version string, major, minor int) bool {
	var m, n int
	_, err := fmt.Sscanf(version, "%d.%d", &m, &n)
	return err == nil && (m < major || m == major && n < minor)
}

// warnings are texts for the operator, each told once for the backend.
type warnings struct {
	mu   sync.Mutex
	all  []string
	told int // how many of all were told
}

// warn records a warning, unless it was noted before. The next Attach tells it.
func (w *warnings) warn(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.all, text) {
		w.all = append(w.all, text)
	}
}

// tell sends the warnings that were not told yet as notices about the whole backend.
func (w *warnings) tell(notify func(backend.Notice)) {
	if notify == nil {
		return
	}
	w.mu.Lock()
	fresh := w.all[w.told:]
	w.told = len(w.all)
	w.mu.Unlock()
	for _, text := range fresh {
		notify(backend.Notice{Text: "redis: " + text})
	}
}
