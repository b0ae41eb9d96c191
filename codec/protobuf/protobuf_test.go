package protobuf_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/codec"
	"github.com/seed41896749/eventbus/codec/protobuf"
)

func Example() {
	names := eventbus.Topic[*wrapperspb.StringValue]{Name: "names", Codec: protobuf.Codec{}}
	e, err := names.Event(wrapperspb.String("ada"))
	if err != nil {
		panic(err)
	}
	got, err := names.Decode(e)
	fmt.Println(e.ContentType, got.GetValue(), err)
	// Output: application/protobuf ada <nil>
}

// A decoded message equals the encoded one, and each event has a message of its own.
func TestRoundTrip(t *testing.T) {
	topic := eventbus.Topic[*structpb.Struct]{Name: "t", Codec: protobuf.Codec{}}
	want, err := structpb.NewStruct(map[string]any{"a": 1, "b": []any{"x", nil}, "c": map[string]any{"d": true}})
	require.NoError(t, err)
	e, err := topic.Event(want)
	require.NoError(t, err)
	for range 3 {
		again, err := topic.Event(want)
		require.NoError(t, err)
		require.Equal(t, e.Payload, again.Payload, "the encoding is deterministic")
	}
	one, err := topic.Decode(e)
	require.NoError(t, err)
	two, err := topic.Decode(e)
	require.NoError(t, err)
	require.True(t, proto.Equal(want, one))
	require.NotSame(t, one, two)

	var into structpb.Struct // a message instead of a pointer to one
	require.NoError(t, protobuf.Codec{}.Unmarshal(e.Payload, &into))
	require.True(t, proto.Equal(want, &into))
}

// Hostile payloads and wrong types are errors.
func TestErrors(t *testing.T) {
	deep := structpb.NewNullValue()
	for range 200 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	data, err := protobuf.Codec{}.Marshal(deep)
	require.NoError(t, err)
	var v *structpb.Value
	require.ErrorContains(t, protobuf.Codec{}.Unmarshal(data, &v), "recursion")
	require.NoError(t, protobuf.Codec{MaxDepth: 1000}.Unmarshal(data, &v))
	require.Error(t, protobuf.Codec{}.Unmarshal([]byte("{}?"), &v))

	_, err = protobuf.Codec{}.Marshal(7)
	require.EqualError(t, err, "protobuf: int is not a proto.Message")
	for _, to := range []any{nil, 7, new(int), new(*int), (**structpb.Value)(nil)} {
		require.ErrorContains(t, protobuf.Codec{}.Unmarshal(nil, to), "does not point to a proto.Message")
	}
}

// A producer may use another name of the content type.
func TestOtherNames(t *testing.T) {
	c := codec.ByContentType(protobuf.Codec{}, protobuf.Codec{Media: "application/x-protobuf"})
	topic := eventbus.Topic[*wrapperspb.StringValue]{Name: "t", Codec: c}
	e, err := topic.Event(wrapperspb.String("ada"))
	require.NoError(t, err)
	e.ContentType = "application/x-protobuf"
	got, err := topic.Decode(e)
	require.NoError(t, err)
	require.Equal(t, "ada", got.GetValue())
	_, err = topic.Decode(&eventbus.Event{ContentType: "application/json"})
	require.ErrorContains(t, err, `content type "application/json", want "application/protobuf, application/x-protobuf"`)
}
