package redisstream

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus/backend"
)

// An inspection checks, before the first use of a server, whether that server keeps messages
// safely. It asks a server only once: later topics on a server that failed get the same error
// without another wait. The next inspection asks that server again.
type inspection struct {
	backend *Backend
	session *session
	failed  map[*redis.Client]error // the key nil has the error of a Cluster without a topology
}

// topic inspects the server of the topic with this stream.
func (i *inspection) topic(ctx context.Context, stream string) error {
	node, err := i.backend.node(ctx, stream)
	if err != nil {
		node = nil
	} else if i.backend.inspected(node) {
		return nil
	}
	if known := i.failed[node]; known != nil {
		return known
	}
	if err == nil {
		err = i.inspect(ctx, node)
	}
	if err != nil {
		if i.failed == nil {
			i.failed = map[*redis.Client]error{}
		}
		err = classify(ctx, err, false) // an inspection changes nothing on the server
		i.failed[node] = err
	}
	return err
}

// inspect inspects one server.
func (i *inspection) inspect(ctx context.Context, node *redis.Client) error {
	return i.session.do(ctx, func(ctx context.Context) error { return inspect(ctx, i.backend, node) })
}

// checkServers inspects all servers. Servers that do not answer are accepted if another one
// does: their topics fail, and the first use of such a server inspects it.
func (b *Backend) checkServers(ctx context.Context) error {
	nodes, errs, err := b.eachServer(ctx, func(ctx context.Context, node *redis.Client) error { return inspect(ctx, b, node) })
	if err != nil {
		return classify(ctx, err, false)
	}
	silent := 0
	for i := range nodes {
		if errs[i] == nil {
			continue
		}
		if isReply(errs[i]) || backend.Class(errs[i]) != nil {
			return classify(ctx, errs[i], false)
		}
		silent++
		err = errs[i]
	}
	if silent == len(nodes) {
		return classify(ctx, err, false)
	}
	return nil
}

// inspect checks one server. It refuses a server with an unsuitable version or eviction policy.
// It records a warning if the server has no append-only file, may forget marks, or does not let
// the client read its settings.
func inspect(ctx context.Context, b *Backend, node *redis.Client) error {
	info, err := serverInfo(ctx, node)
	if err != nil {
		return err
	}
	for _, f := range b.addServer(node, settingsFindings(info)) {
		switch {
		case f.Severity < backend.SeverityError:
			b.warnings.warn(f.Text + "; " + f.Remedy)
		case f.Code != codeEvicts || !b.options.AllowEviction:
			return &backend.FindingError{Finding: f}
		}
	}
	b.addHook(node).Store(true)
	return nil
}

// serverInfo returns what INFO reports about a server, by section. It returns nil if this client
// is not permitted to ask.
func serverInfo(ctx context.Context, node *redis.Client) (map[string]map[string]string, error) {
	info, err := node.InfoMap(ctx).Result()
	if redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "'info'") {
		return nil, nil // a denied SELECT is an error, because all other commands are then denied as well
	}
	return info, err
}

// olderThan reports whether version is before major.minor. A version that it cannot read is not.
func olderThan(version string, major, minor int) bool {
	var m, n int
	_, err := fmt.Sscanf(version, "%d.%d", &m, &n)
	return err == nil && (m < major || m == major && n < minor)
}

// warnings are texts for the operator. A backend sends each of them once.
type warnings struct {
	mu   sync.Mutex
	all  []string
	sent int // how many of all were sent
}

// warn records a warning that has not been recorded yet. The next Attach sends it.
func (w *warnings) warn(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.all, text) {
		w.all = append(w.all, text)
	}
}

// deliver sends the warnings that were not sent yet, as notices about the whole backend.
func (w *warnings) deliver(notify func(backend.Notice)) {
	if notify == nil {
		return
	}
	w.mu.Lock()
	fresh := w.all[w.sent:]
	w.sent = len(w.all)
	w.mu.Unlock()
	for _, text := range fresh {
		notify(backend.Notice{Text: "redis: " + text})
	}
}

var _ backend.Checker = (*Backend)(nil)

// Check implements [backend.Checker]. It asks each server, in Cluster each master, for INFO and
// one setting.
func (b *Backend) Check(ctx context.Context) ([]backend.Finding, error) {
	var mu sync.Mutex
	var found []backend.Finding
	nodes, errs, err := b.eachServer(ctx, func(ctx context.Context, node *redis.Client) error {
		of, err := b.serverFindings(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		found = append(found, of...)
		return err
	})
	silent := 0
	for i, node := range nodes {
		if errs[i] == nil {
			continue
		}
		if silent++; silent == len(nodes) {
			err = errs[i]
		}
		found = append(found, backend.Finding{
			Code: "redis-silent", Severity: backend.SeverityError, Server: b.serverName(node),
			Text:   "the server does not answer, so its topics cannot be used: " + errs[i].Error(),
			Remedy: "start the server, or let the Cluster replace it",
		})
	}
	if err != nil {
		return nil, b.failure("check", "", classify(ctx, err, false))
	}
	return found, nil
}

// serverFindings returns the findings about one server.
func (b *broker) serverFindings(ctx context.Context, node *redis.Client) ([]backend.Finding, error) {
	info, err := serverInfo(ctx, node)
	if err != nil {
		return nil, err
	}
	found := append(settingsFindings(info), stateFindings(info)...)
	if info["Persistence"]["aof_enabled"] == "1" {
		// An error is normal: many users lack the permission, and some providers refuse
		// CONFIG GET to everybody.
		if set, err := node.ConfigGet(ctx, "appendfsync").Result(); err == nil && set["appendfsync"] == "no" {
			found = append(found, backend.Finding{
				Code: "redis-fsync", Severity: backend.SeverityWarning,
				Text:    "the server leaves it to the operating system when events reach the disk (appendfsync no): if the machine fails, events of the last half minute may be lost",
				Remedy:  "set appendfsync everysec, or always",
				Command: []string{"config", "set", "appendfsync", "everysec"},
			})
		}
	}
	return b.addServer(node, found), nil
}

// addServer adds the server to findings, and completes their commands.
func (b *broker) addServer(node *redis.Client, found []backend.Finding) []backend.Finding {
	for i := range found {
		found[i].Server = b.serverName(node)
		if len(found[i].Command) > 0 {
			found[i].Command = append(b.redisCLI(node), found[i].Command...)
		}
	}
	return found
}

// serverName returns the address of a server, which a client for Sentinel does not reveal.
func (b *broker) serverName(node *redis.Client) string {
	if b.sentinel {
		return "redis, the master of the sentinels"
	}
	return "redis " + node.Options().Addr
}

// redisCLI returns redis-cli with the arguments for a server, without a password.
func (b *broker) redisCLI(node *redis.Client) []string {
	o := node.Options()
	args := []string{"redis-cli"}
	if o.Username != "" {
		args = append(args, "--user", o.Username)
	}
	if o.TLSConfig != nil {
		args = append(args, "--tls")
	}
	switch host, port, err := net.SplitHostPort(o.Addr); {
	case b.sentinel: // the address is unknown
	case err == nil:
		args = append(args, "-h", host, "-p", port)
	default:
		args = append(args, "-s", o.Addr)
	}
	return args
}

const codeEvicts = "redis-evicts"

// settingsFindings returns the findings about the settings of a server. A server is refused if
// one of them is an error.
func settingsFindings(info map[string]map[string]string) (found []backend.Finding) {
	if info == nil {
		return []backend.Finding{{
			Code: "redis-unseen", Severity: backend.SeverityNote,
			Text:   "this user may not read the server's settings (INFO), so version, eviction and persistence are not checked",
			Remedy: "allow the user +info",
		}}
	}
	if v := info["Server"]["redis_version"]; olderThan(v, 6, 2) {
		found = append(found, backend.Finding{
			Code: "redis-version", Severity: backend.SeverityError,
			Text: "the server is Redis " + v + "; it must be 6.2 or later", Remedy: "update the server",
		})
	} else if corrupts(v) {
		found = append(found, backend.Finding{
			Code: "redis-version", Severity: backend.SeverityWarning,
			Text:   "the server is Redis " + v + ", whose XAUTOCLAIM can corrupt its memory (CVE-2022-31144, CVE-2022-35951)",
			Remedy: "update the server to 7.0.5 or later",
		})
	}
	switch policy := info["Memory"]["maxmemory_policy"]; {
	case policy == "noeviction" || policy == "":
	case strings.HasPrefix(policy, "volatile-"):
		// Streams and delays have no time to live.
		found = append(found, backend.Finding{
			Code: "redis-forgets", Severity: backend.SeverityWarning,
			Text:    "the server's maxmemory-policy is " + policy + ": when its memory is full it keeps topics, but may forget IDs of Once early and then store an event twice",
			Remedy:  "set noeviction",
			Command: []string{"config", "set", "maxmemory-policy", "noeviction"},
		})
	default:
		found = append(found, backend.Finding{
			Code: codeEvicts, Severity: backend.SeverityError,
			Text:    "the server's maxmemory-policy is " + policy + ": it would drop topics when its memory is full",
			Remedy:  "set noeviction, or allow eviction in the options",
			Command: []string{"config", "set", "maxmemory-policy", "noeviction"},
		})
	}
	if info["Persistence"]["aof_enabled"] == "0" {
		found = append(found, backend.Finding{
			Code: "redis-no-aof", Severity: backend.SeverityWarning,
			Text:    "the server has no append-only file (appendonly no): a crash loses what was stored since its last snapshot",
			Remedy:  "set appendonly yes",
			Command: []string{"config", "set", "appendonly", "yes"},
		})
	}
	return found
}

// corrupts reports whether a version is one of 7.0.0 to 7.0.4.
func corrupts(version string) bool {
	last, is := strings.CutPrefix(version, "7.0.")
	n, err := strconv.Atoi(last)
	return is && err == nil && n < 5
}

const fullPercent = 90 // percent of maxmemory from which a server counts as nearly full

// stateFindings returns the findings about the state of a server.
func stateFindings(info map[string]map[string]string) (found []backend.Finding) {
	used, _ := strconv.ParseInt(info["Memory"]["used_memory"], 10, 64)
	if most, err := strconv.ParseInt(info["Memory"]["maxmemory"], 10, 64); err == nil && most > 0 && used >= most/100*fullPercent {
		found = append(found, backend.Finding{
			Code: "redis-memory", Severity: backend.SeverityWarning,
			Text:   fmt.Sprintf("the server uses %d of the %d bytes of its maxmemory: Publish fails when it is full", used, most),
			Remedy: "raise maxmemory, or let the groups settle their events and delete groups and topics that nobody uses",
		})
	}
	if info["Replication"]["role"] == "slave" {
		found = append(found, backend.Finding{
			Code: "redis-replica", Severity: backend.SeverityError,
			Text:   "the server is a replica of " + net.JoinHostPort(info["Replication"]["master_host"], info["Replication"]["master_port"]) + ": it refuses events, and may not have the newest ones",
			Remedy: "give the URL of the master, or redis+sentinel: for a master that changes",
		})
	}
	for _, one := range [][2]string{{"aof_last_write_status", "write its append-only file"}, {"rdb_last_bgsave_status", "save its snapshot"}} {
		if s := info["Persistence"][one[0]]; s != "" && s != "ok" {
			found = append(found, backend.Finding{
				Code: "redis-disk", Severity: backend.SeverityError,
				Text:   "the server could not " + one[1] + " (" + one[0] + " is " + s + "): it may refuse events, or lose them at a restart",
				Remedy: "see the log of the server: its disk may be full, or its folder not writable",
			})
		}
	}
	return found
}
