package redisstream

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"time"
)

// PublishDigest is the digest of the script that stores messages.
var PublishDigest = publishScript.digest

// ScriptTexts returns the texts of all scripts.
func ScriptTexts() (texts []string) {
	for _, s := range []*script{
		publishScript, attachScript, takeScript, ackScript, delayScript, extendScript, leaveScript, maintainScript, resetScript, deleteScript, statsScript, groupsScript, clockScript, declareScript,
		heartbeatScript, expireScript, indexScript, pauseScript, settleScript, settledScript,
	} {
		texts = append(texts, s.text)
	}
	return texts
}

// ScriptName returns the name of the script with this digest or text.
func ScriptName(digest string) string {
	for _, text := range ScriptTexts() {
		sum := sha1.Sum([]byte(text))
		if hex.EncodeToString(sum[:]) == digest || strings.HasPrefix(text, digest[:min(len(digest), 20)]) {
			name, _, _ := strings.Cut(text, ":")
			return name
		}
	}
	return digest
}

// AckDigest is the digest of the script that acknowledges.
var AckDigest = ackScript.digest

// SettleDigest is the digest of the script by which an operator settles a message.
var SettleDigest = settleScript.digest

// TakeDigest is the digest of the script that takes redelivered messages.
var TakeDigest = takeScript.digest

// DelayDigest is the digest of the script that delays.
var DelayDigest = delayScript.digest

// SetYouth sets how long a stream is young.
func (b *Backend) SetYouth(d time.Duration) { b.youngFor = d }

// AskAgain makes the backend's knowledge of limits a second older, so that it asks again.
func (b *Backend) AskAgain() {
	b.bounds.mu.Lock()
	defer b.bounds.mu.Unlock()
	for topic, known := range b.bounds.topics {
		b.bounds.topics[topic] = topicBound{known.bounded, known.asked.Add(-boundTTL)}
	}
}

// Age makes the last prune a minute older, so that connections are looked at again.
func (b *Backend) Age() { b.pruned.Store(time.Now().Add(-idleTimeout - time.Second).UnixNano()) }

// Forget makes all connections look unused for a while.
func (b *Backend) Forget() {
	b.all.Range(func(one, _ any) bool {
		w := one.(*session)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, l := range w.clients {
			l.lastUsed = l.lastUsed.Add(-2 * idleTimeout)
		}
		return true
	})
}

// ReplaceMaster makes the backend act as if Sentinel had replaced the master.
func (b *Backend) ReplaceMaster() { b.masterEpoch.Add(1) }

// HoldSessions takes all sessions of the pool, so that a call that needs one waits.
func (b *Backend) HoldSessions(ctx context.Context) (release func(), err error) {
	var held []*session
	for range maxSessions {
		sess, err := b.sessions.Get(ctx)
		if err != nil {
			return nil, err
		}
		held = append(held, sess)
	}
	return func() {
		for _, sess := range held {
			b.sessions.Put(sess)
		}
	}, nil
}
