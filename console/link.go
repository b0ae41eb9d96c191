package console

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
	"github.com/seed41896749/eventbus/internal/partition"
)

// All links are relative to the page, and have names in the query only.

func topicURL(topic string) string { return "topic?" + url.Values{"name": {topic}}.Encode() }

func groupURL(topic, group string) string {
	return "group?" + url.Values{"topic": {topic}, "name": {group}}.Encode()
}

func lettersURL(topic string) string { return "letters?" + url.Values{"topic": {topic}}.Encode() }

// classURL returns the URL of the dead letters of one class.
func classURL(topic string, k groupstats.Kind) string {
	v := (&search{Kind: &k}).values()
	v.Set("topic", topic)
	return "letters?" + v.Encode() + "#events"
}

// searchURL returns the URL of a search for the event with an ID in a topic.
func searchURL(topic, id string) string {
	s := search{ID: id}
	v := s.values()
	v.Set("name", topic)
	return "topic?" + v.Encode() + "#events"
}

// eventURL returns the URL of the event at a position of a topic.
func eventURL(topic, position string) string {
	return "event?" + url.Values{"topic": {topic}, "at": {position}}.Encode()
}

// topicParam returns the topic of a request, which the backend may be asked for. Without one it has
// answered the request.
func (c *console) topicParam(w http.ResponseWriter, r *http.Request, param string) (string, bool) {
	topic := r.URL.Query().Get(param)
	if backend.CheckName(topic) != nil {
		c.fail(w, r, "Not found", errNotFound)
		return "", false
	}
	return topic, true
}

// parseStart parses a Start in a parameter.
func parseStart(text string) (backend.Start, bool) {
	s := backend.Start(text)
	if s == backend.StartEarliest {
		return s, true
	}
	_, after := s.After()
	_, at := s.At()
	return s, after || at
}

// link returns the URL of the event in topic.
func (r *eventRow) link(topic string) string {
	return "event?" + url.Values{"topic": {topic}, "from": {string(r.From)}, "at": {r.Position}}.Encode()
}

// groupLettersURL returns the URL of the dead letters of one group.
func groupLettersURL(topic, group string) string {
	return "letters?" + url.Values{"topic": {topic}, "group": {group}}.Encode()
}

// lifecycleURL returns the URL of the records about the events of a topic. Without a group they are of
// all groups.
func lifecycleURL(topic, group string) string {
	v := url.Values{"topic": {topic}}
	if group != "" {
		v.Set("group", group)
	}
	return "lifecycle?" + v.Encode()
}

// scheduleURL returns the URL of a topic's schedule.
func scheduleURL(topic string) string { return "schedule?" + url.Values{"topic": {topic}}.Encode() }

func overviewURL(query, status string, first int) string {
	v := url.Values{}
	if query != "" {
		v.Set("q", query)
	}
	if status != "" {
		v.Set("status", status)
	}
	if first > 0 {
		v.Set("first", strconv.Itoa(first))
	}
	return "./?" + v.Encode()
}

func jobURL(id string) string { return "job?" + url.Values{"id": {id}}.Encode() }

// buryURL returns the URL of the page that asks before the event at a position of a topic, which may be
// a partition, is buried.
func buryURL(topic, group, position string) string {
	v := url.Values{"verb": {string(Bury)}, "topic": {topic}, "name": {group}, "at": {position}}
	if of, i, ok := partition.Cut(topic); ok {
		v.Set("topic", of)
		v.Set("partition", strconv.Itoa(i))
	}
	return "confirm?" + v.Encode()
}
