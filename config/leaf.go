package config

import (
	"reflect"
)

// A leaf is a value of the model without keys below it. Its zero value stands for the
// default.
type leaf interface {
	// parse sets the leaf from a text. Its error gives the reason, such as "missing unit",
	// and does not show the text.
	parse(text string, f *field) error
	// noun names the leaf in errors and in the documentation.
	noun(f *field) string
	// schema returns the leaf's JSON Schema.
	schema(f *field) schema
	// form returns the rule for how the leaf is written in YAML.
	form() form
}

// A form is a rule for how a scalar is written in YAML.
type form uint8

const (
	anyForm form = iota
	words        // refuses an unquoted number, date or boolean
	plain        // refuses a quoted value
)

var (
	_ leaf = (*text)(nil)
	_ leaf = (*name)(nil)
	_ leaf = (*topicName)(nil)
	_ leaf = (*secret)(nil)
	_ leaf = (*setting)(nil)
	_ leaf = (*flag)(nil)
	_ leaf = (*number)(nil)
	_ leaf = (*share)(nil)
	_ leaf = (*duration)(nil)
	_ leaf = (*span)(nil)
	_ leaf = (*reach)(nil)
	_ leaf = (*size)(nil)
	_ leaf = (*frequency)(nil)
	_ leaf = (*percent)(nil)
	_ leaf = (*whenFull)(nil)
	_ leaf = (*ack)(nil)
	_ leaf = (*order)(nil)
	_ leaf = (*onFailure)(nil)
	_ leaf = (*missed)(nil)
	_ leaf = (*start)(nil)
	_ leaf = (*group)(nil)
	_ leaf = (*deadLetter)(nil)
)

// asLeaf returns the address of v as a leaf, or false if it is none.
func asLeaf(v reflect.Value) (leaf, bool) {
	l, ok := v.Addr().Interface().(leaf)
	return l, ok
}
