package config

import (
	"reflect"

	"github.com/seed41896749/eventbus"
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
	// style returns the rule for how the leaf is written in YAML.
	style() style
}

// A style is a rule for how a scalar is written in YAML.
type style uint8

const (
	anyStyle   style = iota
	textStyle        // refuses an unquoted number, date or boolean
	plainStyle       // refuses a quoted value
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
	_ leaf = (*durationRange)(nil)
	_ leaf = (*numberRange)(nil)
	_ leaf = (*size)(nil)
	_ leaf = (*rateValue)(nil)
	_ leaf = (*percent)(nil)
	_ leaf = (*enum[eventbus.AckMode])(nil)
	_ leaf = (*missed)(nil)
	_ leaf = (*start)(nil)
	_ leaf = (*groupName)(nil)
	_ leaf = (*deadLetter)(nil)
)

// leafOf returns the address of v as a leaf, or false if it is none.
func leafOf(v reflect.Value) (leaf, bool) {
	l, ok := v.Addr().Interface().(leaf)
	return l, ok
}
