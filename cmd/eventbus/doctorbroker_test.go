package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/bolt"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/internal/testing/natstest"
	"github.com/seed41896749/eventbus/internal/testing/redistest"
	"github.com/seed41896749/eventbus/nats"
	"github.com/seed41896749/eventbus/redisstream"
)

// Each unsafe setting of a Redis is found, and gone after the command of the finding.
func TestDoctorFindsSettingsOfRedis(t *testing.T) {
	t.Parallel()
	for code, row := range map[string]struct {
		args  []string
		noAOF bool
		exit  int
	}{
		"redis-evicts":  {[]string{"--maxmemory-policy", "allkeys-lru"}, false, 2},
		"redis-forgets": {[]string{"--maxmemory-policy", "volatile-lru"}, false, 1},
		"redis-no-aof":  {nil, true, 1},
		"redis-fsync":   {[]string{"--appendfsync", "no"}, false, 1},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			o := []redistest.Option{redistest.Args("--appendfsync", "everysec"), redistest.Args(row.args...)}
			if row.noAOF {
				o = append(o, redistest.WithoutAOF())
			}
			s := redistest.Start(t, o...)
			p := patientAt(t, s.URL())
			found, _ := p.finds(row.exit)
			require.Len(t, found, 1)
			require.Equal(t, "redis "+s.Addr(), found[code].Server)
			p.pastes(found[code])
			p.healthy()
		})
	}
}

// Each dangerous state of a Redis is found, and gone when it is over.
func TestDoctorFindsStatesOfRedis(t *testing.T) {
	t.Parallel()
	s := durable(t)
	c, p := s.Client(t), patientAt(t, s.URL())
	p.healthy()

	used, err := c.InfoMap(t.Context(), "memory").Result()
	require.NoError(t, err)
	n, err := strconv.Atoi(used["Memory"]["used_memory"])
	require.NoError(t, err)
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(n+n/20)).Err())
	found, _ := p.finds(1)
	require.Contains(t, found, "redis-memory")
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
	p.healthy()

	require.NoError(t, os.Mkdir(filepath.Join(s.Dir(), "dump.rdb"), 0o700))
	_ = c.Save(t.Context()) // fails
	require.NoError(t, c.BgSave(t.Context()).Err())
	await(t, "the snapshot has failed", func() bool {
		info, err := c.InfoMap(t.Context(), "persistence").Result()
		return err == nil && info["Persistence"]["rdb_last_bgsave_status"] == "err"
	})
	found, _ = p.finds(2)
	require.Contains(t, found, "redis-disk")
	require.NoError(t, os.Remove(filepath.Join(s.Dir(), "dump.rdb")))
	require.NoError(t, c.Save(t.Context()).Err())
	p.healthy()

	host, port, _ := strings.Cut(durable(t).Addr(), ":")
	require.NoError(t, c.ReplicaOf(t.Context(), host, port).Err())
	found, _ = p.finds(2)
	require.Contains(t, found, "redis-replica")
	require.NoError(t, c.ReplicaOf(t.Context(), "NO", "ONE").Err())
	p.healthy()

	s.User(t, "viewer", "secret", "+@all", "-info", "~*", "&*")
	blind := patientAt(t, "redis://viewer:secret@"+s.Addr())
	found, _ = blind.finds(0)
	require.Equal(t, "note", found["redis-unseen"].Severity)
	require.NotContains(t, blind.run("doctor", "--for", "1ms").stdout, "secret")
}

// A Cluster without one of its masters is found, although its topics cannot all be looked at.
func TestDoctorFindsASilentMaster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Args("--appendfsync", "everysec"))
	p := patientAt(t, "redis+cluster://"+c.Nodes()[0].Addr())
	p.healthy()
	c.Nodes()[2].Kill()
	found, s := p.finds(2)
	require.Equal(t, "redis "+c.Nodes()[2].Addr(), found["redis-silent"].Server)
	require.Contains(t, strings.Join(s.NotLookedAt, "\n"), "some of the topics and groups")
	c.Nodes()[2].Run()
	await(t, "the Cluster works", func() bool { return p.run("doctor", "--for", "1ms").code == 0 })
}

// A stream is the stream of the topic orders on a server.
func stream(t *testing.T, url string) (jetstream.JetStream, jetstream.StreamConfig) {
	conn, err := natsgo.Connect(url)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	require.Zero(t, patientAt(t, url).run("groups", "create", "orders", "billing").code)
	for info := range js.ListStreams(t.Context()).Info() {
		return js, info.Config
	}
	t.Fatal("there is no stream")
	return nil, jetstream.StreamConfig{}
}

// edits makes the change of the command "nats stream edit" of a finding. The program nats is no
// part of the tests.
func edits(t *testing.T, js jetstream.JetStream, command string, c jetstream.StreamConfig) {
	t.Helper()
	var flag string
	_, err := fmt.Sscanf(command, "nats stream edit "+c.Name+" %s --force", &flag)
	require.NoError(t, err, command)
	switch flag {
	case "--max-age=0s":
		c.MaxAge = 0
	case "--discard=new":
		c.Discard = jetstream.DiscardNew
	case "--replicas=3":
		c.Replicas = 3
	case "--no-allow-rollup":
		c.AllowRollup = false
	case "--max-msgs-per-subject=-1":
		c.MaxMsgsPerSubject = -1
	default:
		t.Fatalf("the test does not know the flag %s", flag)
	}
	_, err = js.UpdateStream(t.Context(), c)
	require.NoError(t, err)
}

// Each setting of a stream that endangers events is found, and gone after the command of the finding.
func TestDoctorFindsSettingsOfStreams(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js, healthy := stream(t, s.URL())
	p := patientAt(t, s.URL())
	p.healthy()
	for code, row := range map[string]struct {
		change func(*jetstream.StreamConfig)
		exit   int
	}{
		"nats-max-age":                  {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, 1},
		"nats-rollups":                  {func(c *jetstream.StreamConfig) { c.AllowRollup = true }, 1},
		"nats-discard":                  {func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, 2},
		"nats-max-messages-per-subject": {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }, 2},
	} {
		c := healthy
		row.change(&c)
		_, err := js.UpdateStream(t.Context(), c)
		require.NoError(t, err, code)
		found, _ := p.finds(row.exit)
		require.Len(t, found, 1)
		require.Equal(t, []string{"orders", "nats stream " + c.Name}, []string{found[code].Topic, found[code].Server}, code)
		edits(t, js, found[code].Command, c)
		p.healthy()
	}

	c := healthy // a setting that no command can change
	require.NoError(t, js.DeleteStream(t.Context(), c.Name))
	c.Storage, c.FirstSeq = jetstream.MemoryStorage, 0
	_, err := js.CreateStream(t.Context(), c)
	require.NoError(t, err)
	found, _ := p.finds(1)
	require.Contains(t, found["nats-storage"].Remedy, "create the topic again")
	patientAt(t, s.URL()+"?storage=memory").healthy() // the operator wants it so
	require.Zero(t, p.run("topics", "delete", "orders", "--yes").code)
	require.Zero(t, p.run("groups", "create", "orders", "billing").code)
	p.healthy()
}

// In a cluster, a stream with one replica is lost with its server.
func TestDoctorFindsOneReplica(t *testing.T) {
	t.Parallel()
	url := natstest.StartCluster(t).Servers()[0].URL()
	js, c := stream(t, url)
	p := patientAt(t, url)
	found, _ := p.finds(1)
	require.Contains(t, found["nats-replicas"].Text, "replicas is 1, not 3")
	edits(t, js, found["nats-replicas"].Command, c)
	await(t, "three replicas", func() bool { return p.run("doctor", "--for", "1ms").code == 0 })
	p.healthy()
}

// The limits of an account are found before it is full, and a user without the right to list streams gets a note.
func TestDoctorFindsTheLimitsOfAnAccount(t *testing.T) {
	t.Parallel()
	s := natstest.StartConfigured(t, `jetstream: {}
accounts: {shop: {jetstream: {max_file: 100KB}, users: [
  {user: all, password: secret},
  {user: some, password: secret, permissions: {publish: {deny: "$JS.API.STREAM.LIST"}}}]}}
`)
	p := patientAt(t, "nats://all:secret@"+s.Addr())
	require.Zero(t, p.run("groups", "create", "orders", "billing").code)
	p.healthy()
	for range 19 {
		require.Zero(t, p.run("pub", "orders", "--data", strings.Repeat("x", 5000)).code)
	}
	found, _ := p.finds(1)
	require.Contains(t, found["nats-account"].Text, "of its file storage")
	found, _ = patientAt(t, "nats://some:secret@"+s.Addr()).finds(0)
	require.Contains(t, found["nats-unseen"].Text, "STREAM.LIST")
	require.Zero(t, p.run("topics", "delete", "orders", "--yes").code)
	p.healthy()
}

// After Close, a check returns ErrClosed, as every verb does.
func TestCheckAfterClose(t *testing.T) {
	t.Parallel()
	for url, d := range map[string]backend.Driver{
		durable(t).URL():        redisstream.Driver{},
		natstest.Start(t).URL(): nats.Driver{},
		"bolt:" + filepath.Join(t.TempDir(), "events.db"): bolt.Driver{},
	} {
		b := openBackend(t, d, url)
		_, err := backend.Check(t.Context(), b)
		require.NoError(t, err)
		require.NoError(t, b.Close())
		_, err = backend.Check(t.Context(), b)
		require.ErrorIs(t, err, backend.ErrClosed)
	}
	_, err := backend.Check(t.Context(), inmemory.New(inmemory.Options{}))
	require.ErrorIs(t, err, errors.ErrUnsupported)
}
