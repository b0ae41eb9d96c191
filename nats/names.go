package nats

import (
	"strings"
)

// A topic is a stream of its own. Stream and consumer names have no dots, so a
// dot is a plus there, which no name of a topic or group has:
//
//	shop.orders   stream bus=shop+orders, subject bus.shop.orders
//	billing.eu    consumer billing+eu
//
// The mapping is one to one, and can be undone.
func (b *Backend) streamName(topic string) string {
	return b.options.Namespace + "=" + dotless(topic)
}

func (b *Backend) subject(topic string) string { return b.options.Namespace + "." + topic }

func consumerName(group string) string { return dotless(group) }

func dotless(name string) string { return strings.ReplaceAll(name, ".", "+") }

func dotted(name string) string { return strings.ReplaceAll(name, "+", ".") }

// topicOf returns the topic of a stream.
func (b *Backend) topicOf(stream string) (topic string, ok bool) {
	rest, ok := strings.CutPrefix(stream, b.options.Namespace+"=")
	return dotted(rest), ok
}
