package presence

import (
	"fmt"
	"reflect"

	"github.com/seed41896749/eventbus"
)

const mostText = 256 // bytes of a value

// Settings returns the settings of o as texts, by field name, such as "Retry.MaxAttempts": "12".
// Two processes can't compare functions or limiters, so a function is "set", and a limiter is the
// name of its type. A rule in Retry.Rules is named by its class, as in
// "Retry.Rules.timeout.MaxAttempts". Group, Topics, and functions, limiters and rules that are not
// set are left out.
func Settings(o eventbus.SubscribeOptions) map[string]string {
	o.Group, o.Topics = "", nil
	all := map[string]string{}
	v := reflect.ValueOf(o)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Group" && v.Type().Field(i).IsExported() {
			add(all, name, v.Field(i))
		}
	}
	return all
}

// add adds the settings in v, which is called name.
func add(all map[string]string, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Func:
		if !v.IsNil() {
			all[name] = "set"
		}
	case reflect.Interface:
		if !v.IsNil() {
			all[name] = v.Elem().Type().String()
		}
	case reflect.Struct:
		for i := range v.NumField() {
			add(all, name+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			addRule(all, name, v.Index(i))
		}
	default:
		all[name] = cut(text(v.Interface()), mostText)
	}
}

// addRule adds the fields of a RetryRule that change something.
func addRule(all map[string]string, name string, rule reflect.Value) {
	class, _ := rule.Interface().(eventbus.RetryRule)
	for i := range rule.NumField() {
		if field := rule.Type().Field(i).Name; field != "Class" && !rule.Field(i).IsZero() {
			add(all, name+"."+class.Class+"."+field, rule.Field(i))
		}
	}
}

// text returns a value as it is written in a configuration file.
func text(value any) string {
	if value == eventbus.StartEarliest {
		return "earliest"
	}
	return fmt.Sprint(value)
}
