package redisstream

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The keys of one topic. They share a hash tag, so that a script may use them
// together in Cluster; a topic name has no braces in it.
//
//	<namespace>:{<topic>}                   the stream
//	<namespace>:{<topic>}:delayed:<group>   ids that wait, by when they are due
//	<namespace>:{<topic>}:delayed:<group>:swept  when the members were last looked through, if they are many
//	<namespace>:{<topic>}:once:<hash>       the position of a Once message, for the window
//	<namespace>:{<topic>}:trimmed           how many entries Maintain has removed
//	<namespace>:{<topic>}:young             the stream appeared just now; it expires
func (b *Backend) streamKey(topic string) string { return b.options.Namespace + ":{" + topic + "}" }

func delayedKey(stream, group string) string { return stream + ":delayed:" + group }

func sweptKey(delayed string) string { return delayed + ":swept" }

// neverKey is where a mark would be, and never is one.
func neverKey(stream string) string { return stream + ":once:-" }

func onceKey(stream, id string) string {
	sum := sha256.Sum256([]byte(id))
	return stream + ":once:" + hex.EncodeToString(sum[:16])
}

func trimmedKey(stream string) string { return stream + ":trimmed" }

func youngKey(stream string) string { return stream + ":young" }

// topicOf returns the topic of a stream's key.
func (b *Backend) topicOf(key string) (topic string, ok bool) {
	rest, ok := strings.CutPrefix(key, b.options.Namespace+":{")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "}")
}
