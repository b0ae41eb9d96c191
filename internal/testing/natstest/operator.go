package natstest

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
)

// An Operator signs accounts, which sign users, as `nsc` does. A server accepts the users of the
// accounts that its operator has signed.
type Operator struct {
	t               testing.TB
	self, app, root nkeys.KeyPair
}

// NewOperator makes an operator with one account, which may use JetStream.
func NewOperator(t testing.TB) *Operator {
	t.Helper()
	o := &Operator{t: t}
	for to, create := range map[*nkeys.KeyPair]func() (nkeys.KeyPair, error){
		&o.self: nkeys.CreateOperator, &o.app: nkeys.CreateAccount, &o.root: nkeys.CreateAccount,
	} {
		pair, err := create()
		o.check(err)
		*to = pair
	}
	return o
}

// Config returns the text of a configuration file for a server that trusts o.
func (o *Operator) Config() string {
	o.t.Helper()
	type fields = map[string]any
	limits := fields{
		"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
	}
	system := o.sign(o.self, o.root, fields{"type": "account", "version": 2, "limits": limits})
	for _, stored := range []string{"mem_storage", "disk_storage", "streams", "consumer"} {
		limits[stored] = -1
	}
	return fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n%s: %s\n%s: %s\n}\n",
		o.sign(o.self, o.self, fields{"type": "operator", "version": 2}), o.public(o.root),
		o.public(o.root), system,
		o.public(o.app), o.sign(o.self, o.app, fields{"type": "account", "version": 2, "limits": limits}))
}

// User makes a user who is valid until the given time. It returns the path of the credentials
// file, and the secret in it.
func (o *Operator) User(until time.Time) (path, secret string) {
	o.t.Helper()
	user, err := nkeys.CreateUser()
	o.check(err)
	token := o.claim(o.app, user, map[string]any{"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, "pub": map[string]any{}, "sub": map[string]any{}}, until)
	seed, err := user.Seed()
	o.check(err)
	path = filepath.Join(o.t.TempDir(), "user.creds")
	text := fmt.Sprintf("-----BEGIN NATS USER JWT-----\n%s\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n%s\n------END USER NKEY SEED------\n", token, seed)
	o.check(os.WriteFile(path, []byte(text), 0o600))
	return path, string(seed)
}

func (o *Operator) sign(by, of nkeys.KeyPair, claims map[string]any) string {
	o.t.Helper()
	return o.claim(by, of, claims, time.Now().Add(24*time.Hour))
}

// claim returns a JSON web token with claims. Its subject is the key pair of, and by signs it.
func (o *Operator) claim(by, of nkeys.KeyPair, claims map[string]any, until time.Time) string {
	o.t.Helper()
	body := map[string]any{"iat": time.Now().Unix(), "exp": until.Unix(), "iss": o.public(by), "sub": o.public(of), "name": "test", "nats": claims}
	text, err := json.Marshal(body)
	o.check(err)
	sum := sha256.Sum256(text)
	body["jti"] = base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])
	text, err = json.Marshal(body)
	o.check(err)
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"typ":"JWT","alg":"ed25519-nkey"}`)) + "." + encode(text)
	signature, err := by.Sign([]byte(signed))
	o.check(err)
	return signed + "." + encode(signature)
}

func (o *Operator) public(pair nkeys.KeyPair) string {
	o.t.Helper()
	public, err := pair.PublicKey()
	o.check(err)
	return public
}

func (o *Operator) check(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatalf("natstest: operator: %v", err)
	}
}

// NewNkey makes a user with a key. It returns the name for a server's configuration, the
// path of the seed, and the seed.
func NewNkey(t testing.TB) (name, path, seed string) {
	t.Helper()
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	secret, err := user.Seed()
	if err != nil {
		t.Fatalf("natstest: %v", err)
	}
	if name, err = user.PublicKey(); err != nil {
		t.Fatalf("natstest: %v", err)
	}
	path = filepath.Join(t.TempDir(), "user.nk")
	if err := os.WriteFile(path, secret, 0o600); err != nil {
		t.Fatalf("natstest: %v", err)
	}
	return name, path, string(secret)
}
