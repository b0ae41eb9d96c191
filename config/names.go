package config

import (
	"fmt"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/pattern"
)

// A name is a name of a topic or group.
type name string

const namePattern = `[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*`

func (n *name) parse(s string, _ *field) error {
	if backend.CheckName(s) != nil {
		return errBadName
	}
	*n = name(s)
	return nil
}

func (*name) noun(*field) string { return "name" }

func (*name) schema(*field) schema {
	return schema{"type": "string", "pattern": "^" + namePattern + "$", "maxLength": backend.MaxName}
}

func (*name) style() style { return textStyle }

var errBadName = fmt.Errorf("a name has letters, digits, '_' and '-', joined by '.', and at most %d bytes", backend.MaxName)

// A topicName is the name of a topic, or a pattern; see eventbus.Bus.Subscribe.
type topicName string

func (n *topicName) parse(s string, _ *field) error {
	if pattern.Check(s) != nil {
		return fmt.Errorf("%w; in a pattern a part is * or, at the end, >", errBadName)
	}
	*n = topicName(s)
	return nil
}

func (*topicName) noun(*field) string { return "name or pattern" }

func (*topicName) schema(*field) schema {
	const part = `([A-Za-z0-9_-]+|\*)`
	return schema{"type": "string", "pattern": `^(` + part + `(\.` + part + `)*(\.>)?|>)$`, "maxLength": backend.MaxName}
}

func (*topicName) style() style { return textStyle }

// A groupName is the name of a group, or eventbus.EachInstance.
type groupName string

func (g *groupName) parse(s string, f *field) error {
	if s != eventbus.EachInstance && backend.CheckName(s) != nil {
		return fmt.Errorf("%w; or it is %s", errBadName, eventbus.EachInstance)
	}
	*g = groupName(s)
	return nil
}

func (*groupName) noun(*field) string { return "name or (each)" }

func (*groupName) schema(*field) schema {
	return schema{"type": "string", "pattern": `^(` + namePattern + `|\(each\))$`, "maxLength": backend.MaxName}
}

func (*groupName) style() style { return textStyle }

// A deadLetter is the name of the topic for events that fail for good. It may also be
// eventbus.DiscardDeadLetters.
type deadLetter string

func (d *deadLetter) parse(s string, f *field) error {
	if s != eventbus.DiscardDeadLetters && backend.CheckName(s) != nil {
		return fmt.Errorf("%w; or it is %s", errBadName, eventbus.DiscardDeadLetters)
	}
	*d = deadLetter(s)
	return nil
}

func (*deadLetter) noun(*field) string { return "name or (discard)" }

func (*deadLetter) schema(*field) schema {
	return schema{"type": "string", "pattern": `^(` + namePattern + `|\(discard\))$`, "maxLength": backend.MaxName}
}

func (*deadLetter) style() style { return textStyle }
