// Package cloudevents lets the Go SDK of CloudEvents read the messages that a bus stores,
// and write messages that a bus reads. A program without the bus needs no more than this to
// share a topic with programs that use it.
package cloudevents

import (
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/binding/spec"
	"github.com/cloudevents/sdk-go/v2/types"
)

const prefix = "ce-"

var specs = spec.WithPrefix(prefix)

// A Message is an event in binary mode: attributes are headers with the prefix "ce-".
type Message struct {
	Headers map[string]string
	Data    []byte
}

var (
	_ binding.MessageReader         = (*Message)(nil)
	_ binding.MessageMetadataReader = (*Message)(nil)
	_ binding.BinaryWriter          = (*Message)(nil)
)

// version returns the version of CloudEvents that m names, or nil.
func (m *Message) version() spec.Version {
	return specs.Version(m.Headers[specs.PrefixedSpecVersionName()])
}

// ReadEncoding reports whether m has a version of CloudEvents.
func (m *Message) ReadEncoding() binding.Encoding {
	if m.version() == nil {
		return binding.EncodingUnknown
	}
	return binding.EncodingBinary
}

// ReadStructured refuses m, because it is in binary mode.
func (*Message) ReadStructured(context.Context, binding.StructuredWriter) error {
	return binding.ErrNotStructured
}

// ReadBinary passes the attributes and the data of m to w. Other headers are not part of
// the event.
func (m *Message) ReadBinary(_ context.Context, w binding.BinaryWriter) error {
	version := m.version()
	if version == nil {
		return binding.ErrNotBinary
	}
	for name, value := range m.Headers {
		var err error
		if attribute := version.Attribute(name); attribute != nil {
			err = w.SetAttribute(attribute, value)
		} else if extension, ok := strings.CutPrefix(name, prefix); ok {
			err = w.SetExtension(extension, value)
		}
		if err != nil {
			return err
		}
	}
	if len(m.Data) == 0 {
		return nil
	}
	return w.SetData(bytes.NewReader(m.Data))
}

// GetAttribute returns an attribute and its value, or nil.
func (m *Message) GetAttribute(kind spec.Kind) (spec.Attribute, any) {
	version := m.version()
	if version == nil {
		return nil, nil
	}
	attribute := version.AttributeFromKind(kind)
	if attribute == nil {
		return nil, nil
	}
	return attribute, m.GetExtension(attribute.Name())
}

// GetExtension returns the value of an extension, or nil.
func (m *Message) GetExtension(name string) any {
	if value, ok := m.Headers[prefix+name]; ok {
		return value
	}
	return nil
}

// Start empties m.
func (m *Message) Start(context.Context) error {
	*m = Message{Headers: map[string]string{}}
	return nil
}

// SetAttribute sets the header of an attribute.
func (m *Message) SetAttribute(attribute spec.Attribute, value any) error {
	return m.SetExtension(attribute.Name(), value)
}

// SetExtension sets the header of an extension.
func (m *Message) SetExtension(name string, value any) (err error) {
	if value != nil {
		m.Headers[prefix+name], err = types.Format(value)
	}
	return err
}

// SetData reads the data.
func (m *Message) SetData(data io.Reader) (err error) {
	m.Data, err = io.ReadAll(data)
	return err
}

// End does nothing, because m is complete.
func (*Message) End(context.Context) error { return nil }
