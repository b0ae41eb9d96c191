package redisstream

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"time"
)

// PublishDigest is what a server calls the script that stores messages.
var PublishDigest = publishScript.digest

// ScriptTexts are all scripts.
func ScriptTexts() (texts []string) {
	for _, s := range []*script{
		publishScript, attachScript, takeScript, ackScript, delayScript, extendScript, leaveScript, maintainScript, resetScript, statsScript, groupsScript,
	} {
		texts = append(texts, s.text)
	}
	return texts
}

// ScriptName is the name of the script that a server calls by a digest, or whose
// text it is.
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

// AckDigest is what a server calls the script that acknowledges.
var AckDigest = ackScript.digest

// TakeDigest is what a server calls the script that takes what comes back.
var TakeDigest = takeScript.digest

// DelayDigest is what a server calls the script that delays.
var DelayDigest = delayScript.digest

// SetYouth says how long a stream is young.
func (b *Backend) SetYouth(d time.Duration) { b.youth = d }
