package codec

import (
	"encoding"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Fields is a codec for flat payloads: named text values, encoded like the query of a URL. With
// redisstream.TopicOptions.Flat, stream entries of other programs become messages with such
// payloads. The Go value is a struct, or a pointer to one.
//
// Each exported field of the struct is a field of the payload. The first part of its tag "field" is
// its name in the payload; without a tag, that is its Go name. A field with the name "-" is left
// out:
//
//	Customer string        `field:"customer_id"`
//	Note     string        `field:"note,optional"`
//	Wait     time.Duration `field:"wait" default:"30s"`
//
// If a field is missing from the payload, Unmarshal fails, unless the field is optional, has a
// default, or is a pointer. An empty value does not count as missing. Unmarshal ignores unknown
// fields, and if a name occurs several times, it reads the first value. Marshal leaves out nil
// pointers, and optional fields that are zero and have no default.
//
// Fields may be of type string, []byte, bool, an integer or float type, time.Duration, or any type
// with MarshalText and UnmarshalText, such as time.Time.
type Fields struct{}

var _ Codec = Fields{}

// A FieldError says which field of a flat payload is invalid, and why.
type FieldError struct {
	Field string // its name in the payload
	Err   error
}

func (e *FieldError) Error() string { return fmt.Sprintf("codec: field %q: %v", e.Field, e.Err) }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// ErrMissing is the error in a [FieldError] if a required field is not in the payload.
var ErrMissing = errors.New("missing")

// ContentType is application/x-www-form-urlencoded.
func (Fields) ContentType() string { return "application/x-www-form-urlencoded" }

// Marshal writes the fields of v in the order of the struct.
func (Fields) Marshal(v any) ([]byte, error) {
	s := reflect.Indirect(reflect.ValueOf(v))
	if s.Kind() != reflect.Struct {
		return nil, fmt.Errorf("codec: fields of a %T, want a struct", v)
	}
	if !s.CanAddr() { // the method MarshalText of a field may need its address
		copied := reflect.New(s.Type()).Elem()
		copied.Set(s)
		s = copied
	}
	var data []byte
	for _, f := range plan(s.Type()) {
		value := s.Field(f.index)
		if value.Kind() == reflect.Pointer && value.IsNil() || f.optional && !f.hasDefault && value.IsZero() {
			continue
		}
		text, err := textOf(value)
		if err != nil {
			return nil, &FieldError{Field: f.name, Err: err}
		}
		if len(data) > 0 {
			data = append(data, '&')
		}
		data = append(append(data, url.QueryEscape(f.name)...), '=')
		data = append(data, url.QueryEscape(text)...)
	}
	return data, nil
}

// Unmarshal reads the fields into v, a pointer to a struct, or to a pointer to a struct. If a field
// is missing or invalid, the error is a *FieldError.
func (Fields) Unmarshal(data []byte, v any) error {
	s := reflect.ValueOf(v)
	for s.Kind() == reflect.Pointer && !s.IsNil() && s.Elem().Kind() == reflect.Pointer {
		s.Elem().Set(reflect.New(s.Elem().Type().Elem()))
		s = s.Elem()
	}
	if s.Kind() != reflect.Pointer || s.IsNil() || s.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("codec: fields are read into a %T, want a pointer to a struct", v)
	}
	fields, err := url.ParseQuery(string(data))
	if err != nil {
		return errors.New("codec: payload is not of URL-encoded fields")
	}
	for _, f := range plan(s.Elem().Type()) {
		text := f.fallback
		switch given, ok := fields[f.name]; {
		case ok:
			text = given[0]
		case f.hasDefault:
		case f.optional:
			continue
		default:
			return &FieldError{Field: f.name, Err: ErrMissing}
		}
		if err := setText(s.Elem().Field(f.index), text); err != nil {
			return &FieldError{Field: f.name, Err: err}
		}
	}
	return nil
}

// A flatField describes a struct field that is in the payload, by its name, type and tags.
type flatField struct {
	name, fallback       string
	optional, hasDefault bool
	index                int
}

// plan returns the fields of the struct type t that are in the payload.
func plan(t reflect.Type) (fs []flatField) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("field"), ",")
		if !field.IsExported() || name == "-" {
			continue
		}
		f := flatField{name: name, index: i, optional: options == "optional" || field.Type.Kind() == reflect.Pointer}
		if f.name == "" {
			f.name = field.Name
		}
		f.fallback, f.hasDefault = field.Tag.Lookup("default")
		fs = append(fs, f)
	}
	return fs
}

// textOf returns the text for v in a payload.
func textOf(v reflect.Value) (string, error) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return "", errors.New("a nil pointer has no text")
	}
	if v.CanAddr() {
		if own, ok := v.Addr().Interface().(encoding.TextMarshaler); ok {
			text, err := own.MarshalText()
			return string(text), err
		}
	}
	switch own := v.Interface().(type) {
	case encoding.TextMarshaler:
		text, err := own.MarshalText()
		return string(text), err
	case time.Duration:
		return own.String(), nil
	case []byte:
		return string(own), nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		return textOf(v.Elem())
	case reflect.String:
		return v.String(), nil
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(v.Uint(), 10), nil
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, v.Type().Bits()), nil
	}
	return "", fmt.Errorf("type %v has no text", v.Type())
}

// setText sets v to the value of text. Its errors do not contain text, except those of an
// UnmarshalText method.
func setText(v reflect.Value, text string) (err error) {
	switch to := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return to.UnmarshalText([]byte(text))
	case *time.Duration:
		if *to, err = time.ParseDuration(text); err != nil {
			return errors.New("not a duration")
		}
		return nil
	case *[]byte:
		*to = []byte(text)
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return setText(v.Elem(), text)
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(text)
		v.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		var n int64
		n, err = strconv.ParseInt(text, 10, v.Type().Bits())
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		var n uint64
		n, err = strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(n)
	case reflect.Float32, reflect.Float64:
		var f float64
		f, err = strconv.ParseFloat(text, v.Type().Bits())
		v.SetFloat(f)
	default:
		return fmt.Errorf("type %v has no text", v.Type())
	}
	if n, ok := errors.AsType[*strconv.NumError](err); ok {
		return fmt.Errorf("not of type %v: %w", v.Type(), n.Err)
	}
	return err
}
