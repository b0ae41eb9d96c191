package console

import (
	"net/http"
	"net/url"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

// All links are relative to the page, and have names in the query only.

func topicURL(topic string) string { return "topic?" + url.Values{"name": {topic}}.Encode() }

func groupURL(topic, group string) string {
	return "group?" + url.Values{"topic": {topic}, "name": {group}}.Encode()
}

func lettersURL(topic string) string { return "letters?" + url.Values{"topic": {topic}}.Encode() }

// classURL returns the URL of the list of letters of one class.
func classURL(topic string, k groupstats.Kind) string {
	v := (&search{Kind: &k}).values()
	v.Set("topic", topic)
	return "letters?" + v.Encode() + "#events"
}

// foundURL returns the URL of a search for the event with an ID in a topic.
func foundURL(topic, id string) string {
	s := search{ID: id}
	v := s.values()
	v.Set("name", topic)
	return "topic?" + v.Encode() + "#events"
}

// placeURL returns the URL of the event at a position of a topic.
func placeURL(topic, position string) string {
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

// startOf returns the Start in a parameter. It returns false for a text that is none.
func startOf(text string) (backend.Start, bool) {
	s := backend.Start(text)
	if s == backend.StartEarliest {
		return s, true
	}
	_, after := s.After()
	_, at := s.At()
	return s, after || at
}
