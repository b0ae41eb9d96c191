package outbox

import (
	"context"
	"database/sql"
	"time"
)

// read returns the committed rows with the lowest numbers, in order, without the rows of
// busy topics and held places.
func (r *relay) read(ctx context.Context) ([]row, error) {
	places := r.holds.active(time.Now())
	if len(places) >= mostAtAll {
		return nil, nil
	}
	s := r.o.d.statement("SELECT id, topic, event_id, event_key, headers, payload FROM ", r.o.tables.waiting, " WHERE 1 = 1")
	s.without(places, r.busy)
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

// resize decides how many rows the next read asks for. With large rows it asks for fewer, so
// that a read gets little that it does not keep. If a read is slow, it asks for more, because
// the database then passes by many deleted rows that an old transaction might still see. The
// steps are large, because drivers keep statements by text.
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

// without adds conditions that exclude the rows of places, and of busy topics.
func (s *statement) without(places []place, busy map[string]bool) {
	topics := make([]string, 0, len(busy))
	for topic := range busy {
		topics = append(topics, topic)
	}
	var numbers []int64
	for _, p := range places {
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

// delete deletes rows by their numbers. The numbers are never used again, so a relay that has
// lost its lease deletes only rows that it has published.
func (o *Outbox) delete(ctx context.Context, numbers []int64) error {
	return o.begin(ctx, o.d.write, func(tx *sql.Tx) error {
		_, err := o.d.deleteIDs(o.tables.waiting, numbers).exec(ctx, tx)
		return err
	})
}
