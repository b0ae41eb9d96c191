package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/internal/nearest"
)

// prefix is the beginning of the name of each variable that sets a key.
const prefix = "EVENTBUS_BUS_"

var toVariable = strings.NewReplacer(".", "_", "-", "_")

// variable returns the name of the variable that sets a key: its path in upper case, with
// underscores for dots and dashes.
func variable(path []string) string {
	return "EVENTBUS_" + strings.ToUpper(toVariable.Replace(strings.Join(path, "_")))
}

// environment returns a map of variables from a list in the form of os.Environ.
func environment(list []string) map[string]string {
	m := make(map[string]string, len(list))
	for _, v := range list {
		if name, value, ok := strings.Cut(v, "="); ok && name != "" {
			m[name] = value
		}
	}
	return m
}

// override replaces values of the file by values of environment variables. It ignores empty
// variables.
func override(root *node, environment map[string]string, p *problems) {
	keys := map[string][][]string{} // the paths of keys, by the name of their variable
	var names []string
	settable(reflect.TypeFor[model](), root, nil, func(path []string) {
		v := variable(path)
		if keys[v] == nil {
			names = append(names, v)
		}
		keys[v] = append(keys[v], path)
	})
	var given []string
	for name, value := range environment {
		if strings.HasPrefix(name, prefix) && value != "" {
			given = append(given, name)
		}
	}
	slices.Sort(given)
	for _, name := range given {
		at := place{variable: name}
		switch paths := keys[name]; len(paths) {
		case 0:
			p.add(at, "", fmt.Sprintf("stands for no key of %s%s", p.file, nearest.Hint("%s", name, names)))
		case 1:
			root.set(paths[0], &node{place: at, text: environment[name]})
		default:
			p.add(at, "", fmt.Sprintf("may stand for %s or for %s", strings.Join(paths[0], "."), strings.Join(paths[1], ".")))
		}
	}
}

// settable yields the path of each key below path that a variable may set. t is the type of
// the model at path. n is its node, which has the names of subscriptions and topics.
func settable(t reflect.Type, n *node, path []string, yield func(path []string)) {
	if _, ok := asLeaf(reflect.New(t).Elem()); ok {
		yield(slices.Clone(path))
		return
	}
	if t.Kind() == reflect.Map {
		if n != nil {
			for _, e := range n.entries {
				settable(t.Elem(), e.value, append(path, e.key), yield)
			}
		}
		return
	}
	for _, f := range fields(t) {
		var value *node
		if n != nil {
			if e := n.entry(f.key); e != nil {
				value = e.value
			}
		}
		settable(f.typ, value, append(path, f.key), yield)
		if file, ok := f.file(); ok {
			yield(append(slices.Clone(path), file))
		}
	}
}

// set sets the key at path to value, and creates missing mappings. If a value on the way is
// not a mapping, set does nothing: the decoder reports that mistake later.
func (n *node) set(path []string, value *node) {
	if n.kind != mapping {
		return
	}
	e := n.entry(path[0])
	if len(path) > 1 {
		if e == nil {
			e = &entry{place: value.place, key: path[0], value: &node{place: value.place, kind: mapping}}
			n.entries = append(n.entries, e)
		}
		e.value.set(path[1:], value)
		return
	}
	// A secret in the environment replaces a secret in the file. In both places the secret
	// may be the value itself or the path of a file.
	other := path[0] + "_file"
	if of, ok := strings.CutSuffix(path[0], "_file"); ok {
		other = of
	}
	if o := n.entry(other); o != nil && o.variable == "" {
		n.remove(other)
	}
	if e == nil {
		e = &entry{key: path[0]}
		n.entries = append(n.entries, e)
	}
	e.place, e.value = value.place, value
}
