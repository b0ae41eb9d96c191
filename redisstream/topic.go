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
	// Flat decodes the entries of other programs as messages. Without Flat such entries are
	// unreadable and go to the dead-letter topic. The payload has the fields of the entry
	// in their order, encoded like the query of a URL. Its content type is
	// application/x-www-form-urlencoded, which codec.Fields reads. The ID of the message is
	// the ID of the entry, unless FlatID names a field. Its time is the server's time in this ID, if the server made it.
	Flat bool

	// FlatID, which needs Flat, is the name of the field whose value is the ID of the
	// message. If an entry has no such field, or Publish would refuse its value as an ID,
	// the ID of the message is the ID of the entry.
	FlatID string

	// FlatKey, which needs Flat, is the name of the field whose value is the key of the
	// message. If an entry has several fields of this name, the first one counts. By
	// default the messages have no key, and so no order.
	FlatKey string

	// FlatType, which needs Flat, is the name of the field whose value is the type of the
	// event. A value that Publish refuses as a type is ignored. By default the events have
	// no type.
	FlatType string

	// FlatPublish makes Publish store a message whose payload has the form of a flat entry's as
	// fields, which redis-cli and programs in other languages read. It needs Flat. A further
	// field, ":event", has the ID, the key and the headers, so that nothing is lost. A message
	// of another content type, with an empty payload, or with more than 100 fields is stored in
	// the usual form. A program of version 0.1 reads such an entry as one of another program.
	FlatPublish bool
}

func checkTopic(topic string, o TopicOptions) error {
	if err := backend.CheckName(topic); err != nil {
		return fmt.Errorf("the topic %w", err)
	}
	if (o.FlatID != "" || o.FlatKey != "" || o.FlatType != "" || o.FlatPublish) && !o.Flat {
		return errors.New("flat_id, flat_key, flat_type or flat_publish is given without flat")
	}
	return nil
}

// ConfigureTopic implements [backend.TopicConfigurer]. Settings are the fields of
// [TopicOptions]: flat (true or false), flat_id, flat_key, flat_type, and flat_publish (true or
// false).
func (d Driver) ConfigureTopic(topic string, settings map[string]string) (backend.Driver, error) {
	var o TopicOptions
	err := brokerurl.Table{
		"flat":         brokerurl.Bool(&o.Flat),
		"flat_id":      {Set: func(name string) error { o.FlatID = name; return nil }},
		"flat_key":     {Set: func(name string) error { o.FlatKey = name; return nil }},
		"flat_publish": brokerurl.Bool(&o.FlatPublish),
		"flat_type":    {Set: func(name string) error { o.FlatType = name; return nil }},
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
