// Package natsstore is a store of values in a key-value bucket of NATS JetStream, which all
// members of a cluster share.
//
//	conn, err := nats.Connect("nats://localhost:4222")
//	…
//	js, err := jetstream.New(conn)
//	…
//	shared, err := natsstore.Open(ctx, js, natsstore.Options{Replicas: 3, MaxBytes: 1 << 30})
package natsstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed41896749/eventbus/store"
)

// Options are the settings of a bucket that [Open] creates. A zero field means its default. An
// existing bucket keeps its own settings.
type Options struct {
	Bucket   string // name of the bucket: letters, digits, '_' and '-'; default "eventbus"
	Replicas int    // how many servers of a cluster store the bucket; default 1

	// MaxBytes limits the storage of the bucket. While the bucket is full, Set fails until
	// values have expired. By default only the limits of the account and the server apply.
	MaxBytes int64

	Memory bool // keep values in memory; they are lost when the servers stop
}

// A Store is a [store.Store] that all members share. Its methods are safe for concurrent use.
//
// Set publishes one message and returns when the servers have stored it; Get is one request.
// The server removes each value when its time to live is over. It counts in whole seconds, so a
// value may live up to two seconds longer, and leaves a marker in its place for another second.
//
// Any server with a replica of the bucket may answer Get, so in a cluster Get may for a moment
// miss a value that has just been set.
type Store struct {
	js     jetstream.JetStream
	values jetstream.KeyValue
	prefix string // begins the subjects of values
}

var _ store.Store = (*Store)(nil)

// Open returns a store in the bucket o.Bucket, and creates the bucket if it is missing. Closing
// the connection of js remains the caller's job.
//
// Times to live need nats-server 2.11. If the server is older, or the bucket was created
// without LimitMarkerTTL or with a history of several values, the error matches
// [errors.ErrUnsupported].
func Open(ctx context.Context, js jetstream.JetStream, o Options) (*Store, error) {
	bucket := cmp.Or(o.Bucket, "eventbus")
	values, err := open(ctx, js, bucket, o)
	if err != nil {
		return nil, fmt.Errorf("natsstore: open bucket %q: %w", bucket, err)
	}
	s := &Store{js: js, values: values, prefix: "$KV." + bucket + "."}
	if api := js.Options().APIPrefix; api != jetstream.DefaultAPIPrefix {
		s.prefix = api + s.prefix // for a bucket of another domain or account
	}
	return s, nil
}

func open(ctx context.Context, js jetstream.JetStream, bucket string, o Options) (jetstream.KeyValue, error) {
	values, err := js.KeyValue(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		c := jetstream.KeyValueConfig{
			Bucket: bucket, Replicas: o.Replicas, MaxBytes: o.MaxBytes,
			History: 1, LimitMarkerTTL: time.Second,
		}
		if o.Memory {
			c.Storage = jetstream.MemoryStorage
		}
		values, err = js.CreateKeyValue(ctx, c)
		if errors.Is(err, jetstream.ErrBucketExists) { // another member was faster
			values, err = js.KeyValue(ctx, bucket)
		}
	}
	switch {
	case errors.Is(err, jetstream.ErrLimitMarkerTTLNotSupported):
		return nil, fmt.Errorf("%w: %w: times to live need nats-server 2.11, and this is %s",
			errors.ErrUnsupported, err, js.Conn().ConnectedServerVersion())
	case err != nil:
		return nil, err
	}
	status, err := values.Status(ctx)
	switch {
	case err != nil:
		return nil, err
	case status.LimitMarkerTTL() == 0:
		return nil, fmt.Errorf("%w: the bucket was made without LimitMarkerTTL, so its values have no times to live", errors.ErrUnsupported)
	case status.History() != 1:
		return nil, fmt.Errorf("%w: the bucket keeps %d values of a key, so an old value would come back", errors.ErrUnsupported, status.History())
	}
	return values, nil
}

// Set keeps value under key for ttl, rounded up to whole seconds. The size of a value is
// bounded by the server's max_payload, 1 MiB by default.
func (s *Store) Set(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	if err := store.CheckTTL(ttl); err != nil {
		return err
	}
	ttl = (ttl + time.Second - 1).Truncate(time.Second)
	// The Put of a bucket has no time to live, and its Create replaces no value.
	msg := &natsgo.Msg{Subject: s.prefix + escape(key), Data: value}
	if _, err := s.js.PublishMsg(ctx, msg, jetstream.WithMsgTTL(ttl)); err != nil {
		return fmt.Errorf("natsstore: set: %w", err)
	}
	return nil
}

// Get returns the value under key.
func (s *Store) Get(ctx context.Context, key string) ([]byte, bool, error) {
	entry, err := s.values.Get(ctx, escape(key))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("natsstore: get: %w", err)
	}
	return entry.Value(), true, nil
}
