package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
)

// read returns the committed rows with the lowest numbers, in order, without those of busy topics
// and held scopes.
func (r *relay) read(ctx context.Context) ([]row, error) {
	scopes := r.holds.active(time.Now())
	if len(scopes) >= mostScopes {
		return nil, nil
	}
	s := r.o.d.statement("SELECT id, topic, event_id, event_key, headers, payload FROM ", r.o.tables.waiting, " WHERE 1 = 1")
	s.without(scopes, r.busy)
	s.add(" ORDER BY id LIMIT ", itoa(r.most))
	var rows []row
	size, began := 0, time.Now()
	err := r.o.begin(ctx, r.o.d.read, func(tx *sql.Tx) error {
		found, err := s.query(ctx, tx)
		if err != nil {
			return err
		}
		defer found.Close()
		for size < mostRead && found.Next() {
			var w row
			if err := found.Scan(&w.number, &w.topic, &w.id, &w.key, &w.headers, &w.payload); err != nil {
				return err
			}
			rows, size = append(rows, w), size+w.size()
		}
		return found.Err()
	})
	if err != nil {
		return nil, err
	}
	r.resize(len(rows), size, time.Since(began))
	return rows, nil
}

const slowRead = 50 * time.Millisecond

// resize decides how many rows the next read asks for. With large rows it asks for fewer, so that a
// read fetches little that it doesn't keep. If a read is slow it asks for more, because the
// database is then scanning past many deleted rows that an old transaction might still see. The
// steps are large, because drivers cache statements by text.
func (r *relay) resize(rows, size int, took time.Duration) {
	bound := r.o.options.Batch
	if took > slowRead || r.most > bound {
		bound = mostBatch
	}
	switch {
	case size >= mostRead:
		r.most = max(1, r.most/2)
	case rows == r.most && size < mostRead/4 && (r.most < r.o.options.Batch || took > slowRead):
		r.most = min(2*r.most, bound)
	case rows < r.most && r.most > r.o.options.Batch && took < slowRead:
		r.most = r.o.options.Batch
	}
}

// without adds conditions that exclude the rows of scopes and of busy topics.
func (s *statement) without(scopes []scope, busy map[string]bool) {
	topics := make([]string, 0, len(busy))
	for topic := range busy {
		topics = append(topics, topic)
	}
	var numbers []int64
	for _, p := range scopes {
		switch {
		case p.number != 0:
			numbers = append(numbers, p.number)
		case p.key != "":
			s.add(" AND NOT (topic = ").arg(p.topic).add(" AND event_key = ").arg([]byte(p.key)).add(")")
		case !busy[p.topic]:
			topics = append(topics, p.topic)
		}
	}
	for i, topic := range topics {
		if i == 0 {
			s.add(" AND topic NOT IN (")
		} else {
			s.add(", ")
		}
		s.arg(topic)
	}
	if len(topics) > 0 {
		s.add(")")
	}
	if len(numbers) > 0 {
		s.add(" AND NOT (").ids("id", numbers).add(")")
	}
}

// delete deletes rows by number. Numbers are never reused, so a relay that has lost its lease only
// deletes rows that it has published.
func (o *Outbox) delete(ctx context.Context, numbers []int64) error {
	return o.begin(ctx, o.d.write, func(tx *sql.Tx) error {
		_, err := o.d.deleteIDs(o.tables.waiting, numbers).exec(ctx, tx)
		return err
	})
}

// A row is an event in the database.
type row struct {
	number           int64 // the primary key; zero before the insertion
	topic            string
	id, key, payload []byte
	headers          []byte // a JSON object
}

// fill makes r the row that stores e.
func (r *row) fill(topic string, e *eventbus.Event, service string) error {
	if e != nil && e.Source == "" && service != "" {
		named := *e
		named.Source = service
		e = &named
	}
	m, err := eventbus.MessageOf(topic, e)
	if err != nil {
		return err
	}
	headers := make(map[string]string, len(m.Headers))
	for _, h := range m.Headers {
		headers[h.Name] = h.Value
	}
	if r.headers, err = json.Marshal(headers); err != nil {
		return err
	}
	r.topic, r.id, r.key, r.payload = topic, []byte(m.ID), []byte(m.Key), m.Payload
	if r.payload == nil { // nil would be NULL
		r.payload = []byte{}
	}
	return nil
}

// event returns the event stored in r. If another program wrote headers that are not a JSON object
// of strings, the error is an *eventbus.FieldError.
func (r *row) event() (*eventbus.Event, error) {
	m := backend.Message{Topic: r.topic, ID: string(r.id), Key: string(r.key), Payload: r.payload}
	var headers map[string]string
	if err := json.Unmarshal(r.headers, &headers); err != nil {
		return nil, &eventbus.FieldError{Field: "headers", Reason: "are no JSON object of texts: " + err.Error()}
	}
	m.Headers = make(backend.Headers, 0, len(headers))
	for name, value := range headers {
		m.Headers = append(m.Headers, backend.Header{Name: name, Value: value})
	}
	e := eventbus.EventOf(&m)
	return &e, nil
}

func (r *row) size() int {
	return len(r.payload) + len(r.headers) + len(r.id) + len(r.key)
}
