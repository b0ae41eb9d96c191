package redisstream

import (
	"errors"
	"fmt"
	"maps"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/brokerurl"
)

// TopicOptions are the settings of one topic.
type TopicOptions struct {
	// Flat reads the entries of other programs as messages. Without it they are unreadable
	// and go to the dead-letter topic. The payload of such a message has the fields of the
	// entry in their order, encoded as in the query of a URL, with the content type
	// application/x-www-form-urlencoded. Its ID is the ID of the entry. Codec Fields in
	// package codec reads it.
	Flat bool

	// FlatKey is the field of such an entry whose value is the key of the message; if there
	// are several, the first. Default: no key, and so no order.
	FlatKey string
}

func checkTopic(topic string, o TopicOptions) error {
	if err := backend.CheckName(topic); err != nil {
		return fmt.Errorf("the topic %w", err)
	}
	if o.FlatKey != "" && !o.Flat {
		return errors.New("flat_key is given without flat")
	}
	return nil
}

// ConfigureTopic implements [backend.TopicConfigurer]. Settings are the fields of
// [TopicOptions]: flat (true or false) and flat_key.
func (d Driver) ConfigureTopic(topic string, settings map[string]string) (backend.Driver, error) {
	var o TopicOptions
	err := brokerurl.Table{
		"flat":     brokerurl.Bool(&o.Flat),
		"flat_key": {Set: func(name string) error { o.FlatKey = name; return nil }},
	}.Settings(settings)
	if err == nil {
		err = checkTopic(topic, o)
	}
	if _, twice := d.topics[topic]; twice && err == nil {
		err = errors.New("the topic is configured already")
	}
	if err != nil {
		return nil, fmt.Errorf("redisstream: configure %s: %w", topic, err)
	}
	next := Driver{topics: map[string]TopicOptions{topic: o}}
	maps.Copy(next.topics, d.topics)
	return next, nil
}
