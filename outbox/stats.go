package outbox

import (
	"context"
	"time"
)

// Stats describe the current state of an outbox, for operators.
type Stats struct {
	Waiting int           // committed events that are not yet published, or not yet deleted
	Oldest  time.Duration // the age of the oldest of them, by the database's clock
	Topics  []TopicStats  // the topics with such events, by name
	Refused int           // events that the bus refused for good

	// Relay names the process of the active relay, as host/pid/random text. It is empty if no relay
	// is active.
	Relay string
}

// TopicStats describe the waiting events of one topic.
type TopicStats struct {
	Topic   string
	Waiting int
	Oldest  time.Duration
}

// Stats returns the current state. It counts rows, so it takes longer if there are many.
func (o *Outbox) Stats(ctx context.Context) (Stats, error) {
	s, err := o.waiting(ctx)
	if err != nil {
		return Stats{}, o.failed("count events of", err)
	}
	count := o.d.statement("SELECT COUNT(*) FROM ", o.tables.refused)
	if err := count.row(ctx, o.db).Scan(&s.Refused); err != nil {
		return Stats{}, o.failed("count refused events of", err)
	}
	if s.Relay, err = o.active(ctx); err != nil {
		return Stats{}, o.failed("look up the relay of", err)
	}
	return s, nil
}

func (o *Outbox) waiting(ctx context.Context) (s Stats, err error) {
	q := o.d.statement("SELECT topic, COUNT(*), ", o.d.now, " - MIN(created) FROM ", o.tables.waiting, " GROUP BY topic ORDER BY topic")
	rows, err := q.query(ctx, o.db)
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var t TopicStats
		var age int64
		if err := rows.Scan(&t.Topic, &t.Waiting, &age); err != nil {
			return s, err
		}
		t.Oldest = max(0, time.Duration(age)*time.Millisecond)
		s.Topics = append(s.Topics, t)
		s.Waiting, s.Oldest = s.Waiting+t.Waiting, max(s.Oldest, t.Oldest)
	}
	return s, rows.Err()
}

// active returns the owner of the lease, or "".
func (o *Outbox) active(ctx context.Context) (string, error) {
	q := o.d.statement("SELECT owner FROM ", o.tables.relay, " WHERE expires > ", o.d.now)
	rows, err := q.query(ctx, o.db)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	owner := ""
	if rows.Next() {
		err = rows.Scan(&owner)
	}
	if err != nil {
		return "", err
	}
	return owner, rows.Err()
}
