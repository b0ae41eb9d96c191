// Package protobuf provides a codec for Protocol Buffers.
package protobuf

import (
	"cmp"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"

	"github.com/seed41896749/eventbus/codec"
)

// Codec encodes and decodes Protocol Buffers. The type parameter of the topic is a pointer to a
// generated message, as in eventbus.Topic[*shop.Order].
type Codec struct {
	Media    string // the content type; default application/protobuf
	MaxDepth int    // how deep messages may be nested when decoding; default 100
}

var _ codec.Codec = Codec{}

// ContentType returns Media or its default.
func (c Codec) ContentType() string { return cmp.Or(c.Media, "application/protobuf") }

// Marshal encodes v, a proto.Message. Programs with the same version of
// google.golang.org/protobuf encode equal messages to equal bytes.
func (Codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("protobuf: %T is not a proto.Message", v)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// Unmarshal decodes data into v, which is either a proto.Message, such as a *Order, or a pointer to
// one, such as a **Order, for which it allocates the message.
func (c Codec) Unmarshal(data []byte, v any) error {
	m, err := message(v)
	if err != nil {
		return err
	}
	return proto.UnmarshalOptions{RecursionLimit: cmp.Or(c.MaxDepth, 100)}.Unmarshal(data, m)
}

// message returns v if it is a proto.Message. If v points to a pointer to a message type, message
// sets that pointer to a new message and returns it.
func message(v any) (proto.Message, error) {
	if m, ok := v.(proto.Message); ok {
		return m, nil
	}
	to := reflect.ValueOf(v)
	if to.Kind() == reflect.Pointer && !to.IsNil() && to.Elem().Kind() == reflect.Pointer {
		made := reflect.New(to.Elem().Type().Elem())
		if m, ok := made.Interface().(proto.Message); ok {
			to.Elem().Set(made)
			return m, nil
		}
	}
	return nil, fmt.Errorf("protobuf: %T does not point to a proto.Message", v)
}
