package config

import (
	"reflect"
)

// A leaf is a single value of the model. Its zero value stands for the default.
type leaf interface {
	// parse sets it from a text. Its error says what is wrong, such as "missing
	// unit", and does not show the text.
	parse(text string, f *field) error
	// noun is what it is, in errors and in the documentation.
	noun(f *field) string
	// schema is its form in JSON Schema.
	schema(f *field) schema
	// form is what YAML must have taken it for.
	form() form
}

// A form is what YAML takes a scalar for.
type form uint8

const (
	anyForm form = iota
	words        // what is not quoted and looks like a number, a date or true is refused
	plain        // what is quoted is refused
)

var (
	_ leaf = (*text)(nil)
	_ leaf = (*name)(nil)
	_ leaf = (*secret)(nil)
	_ leaf = (*setting)(nil)
	_ leaf = (*flag)(nil)
	_ leaf = (*number)(nil)
	_ leaf = (*share)(nil)
	_ leaf = (*duration)(nil)
	_ leaf = (*span)(nil)
	_ leaf = (*size)(nil)
	_ leaf = (*ack)(nil)
	_ leaf = (*order)(nil)
	_ leaf = (*onFailure)(nil)
	_ leaf = (*start)(nil)
	_ leaf = (*deadLetter)(nil)
)

// asLeaf returns v as a leaf, if it is one.
func asLeaf(v reflect.Value) (leaf, bool) {
	l, ok := v.Addr().Interface().(leaf)
	return l, ok
}
