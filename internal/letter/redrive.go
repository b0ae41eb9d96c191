package letter

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/cloudevent"
)

// A redriven message stores a dead-lettered event in its topic again, for the one group that could
// not handle it. The message has an ID of its own, so that a second attempt to store it is a
// duplicate of the first. These headers keep the ID of the event and more. Like attributes, they
// begin with "ce-", so that handlers don't see them.
const (
	RedriveID    = "ce-redriveid"    // the ID of the event
	redriveGroup = "ce-redrivegroup" // the group that could not handle the event
	redriveCount = "ce-redrivecount" // how often the event was redriven
)

const redrivePrefix = "redrive/"

// Redrive turns m, the event of the dead letter dead, into a redriven message. It sets Once, and an
// ID that no other dead letter produces, even if its topic was deleted and created again.
func Redrive(m, dead *backend.Message) {
	id := sha256.Sum256([]byte(dead.Topic + "/" + dead.Position + "/" + dead.ID))
	m.Topic, m.ID, m.Once = dead.Headers.Get(Topic), redrivePrefix+hex.EncodeToString(id[:16]), true
	m.Position = ""
	m.Headers.Set(RedriveID, dead.Headers.Get(ID))
	m.Headers.Set(redriveGroup, dead.Headers.Get(Group))
	m.Headers.Set(redriveCount, strconv.Itoa(Redrives(dead)+1))
}

// Redrives returns how often the event of a dead letter had been redriven before.
func Redrives(dead *backend.Message) int {
	n, _ := strconv.Atoi(dead.Headers.Get(Redriven))
	return n
}

// Event returns the event of a dead letter as it was first published.
func Event(dead *backend.Message) *backend.Message {
	return &backend.Message{
		Topic: dead.Headers.Get(Topic), ID: dead.Headers.Get(ID), Key: dead.Key, Headers: Original(dead),
		Payload: dead.Payload, Position: dead.Headers.Get(Position),
	}
}

// Original returns the headers that a dead letter's event had, without those that this package
// added and with Retry restored.
func Original(dead *backend.Message) backend.Headers {
	headers := make(backend.Headers, 0, len(dead.Headers))
	for _, h := range dead.Headers {
		switch {
		case strings.HasPrefix(h.Name, first):
			headers = append(headers, backend.Header{Name: deadPrefix + h.Name[len(first):], Value: h.Value})
		case h.Name == eventRetry:
			headers = append(headers, backend.Header{Name: Retry, Value: h.Value})
		case strings.HasPrefix(h.Name, deadPrefix), IsRedrive(h.Name):
		default:
			headers = append(headers, h)
		}
	}
	return headers
}

// Carried returns the headers of m that its dead letter keeps. If m is a dead letter itself, its
// fields are renamed, except for the large ones, so that [Original] can restore them. Fields of an
// even earlier dead letter are dropped, so that letters that go round in a circle of topics don't
// grow.
func Carried(m *backend.Message) backend.Headers {
	headers := make(backend.Headers, 0, len(m.Headers))
	for _, h := range m.Headers {
		switch {
		case strings.HasPrefix(h.Name, first), h.Name == Error, h.Name == Stack, IsRedrive(h.Name):
		case strings.HasPrefix(h.Name, deadPrefix):
			headers = append(headers, backend.Header{Name: first + h.Name[len(deadPrefix):], Value: h.Value})
		default:
			headers = append(headers, h)
		}
	}
	return headers
}

// IsRedrive reports whether name is a header that Redrive sets.
func IsRedrive(name string) bool {
	return name == RedriveID || name == redriveGroup || name == redriveCount
}

// Restore sets the ID of a received message to the ID of its event if it is redriven. It returns
// the one group that the event is for, or "" if it is for every group. A message of another program
// gets the form that the bus stores; see [cloudevent.Adopt].
func Restore(m *backend.Message) (group string) {
	cloudevent.Adopt(m)
	if !strings.HasPrefix(m.ID, redrivePrefix) {
		return ""
	}
	if id, ok := m.Headers.Lookup(RedriveID); ok {
		m.ID = id
		return m.Headers.Get(redriveGroup)
	}
	return ""
}

// RedriveCount returns, as text, how often the event of a received message was redriven, or "" for
// never.
func RedriveCount(m *backend.Message) string { return m.Headers.Get(redriveCount) }
