package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/nearest"
)

// A decoder fills a model from the tree of nodes of a file.
type decoder struct {
	*problems
	environment map[string]string
	locations   map[string]location // the location of each given key, by its path
}

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// value decodes n into v. n is the value of the key f at path. at is the position of the key.
func (d *decoder) value(n *node, at location, path string, f *field, v reflect.Value) {
	if path != "" {
		d.locations[path] = n.location
		if n.kind == mapping {
			d.locations[path] = at
		}
	}
	if l, ok := leafOf(v); ok {
		d.leaf(n, path, f, l)
		return
	}
	switch {
	case v.Kind() == reflect.Slice:
		d.items(n, path, f, v)
	case n.kind == scalar && n.tag == "!!null":
		d.add(n.location, path, "has no value; leave the key out, or give it keys")
	case n.kind != mapping:
		d.add(n.location, path, "is "+n.noun()+"; it must have keys below it")
	case v.Kind() == reflect.Map:
		d.names(n, path, f, v)
	default:
		d.keys(n, at, path, v)
	}
}

// noun returns the words with which an error names the kind of a node.
func (n *node) noun() string {
	switch n.kind {
	case list:
		return "a list"
	case mapping:
		return "a mapping"
	}
	switch n.tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!timestamp":
		return "a date"
	case "!!str":
		return "a text"
	}
	return "of a type of its own"
}

// keys decodes a mapping into the struct v. It reports keys that are unknown or missing.
func (d *decoder) keys(n *node, at location, path string, v reflect.Value) {
	known := fields(v.Type())
	var keys []string
	for _, f := range known {
		keys = append(keys, f.key)
		e := n.entry(f.key)
		if e != nil {
			d.value(e.value, e.location, join(path, f.key), f, v.Field(f.index))
		}
		file, ok := f.file()
		if !ok {
			switch other := n.entry(f.alternative); {
			case e == nil && f.required && f.alternative == "":
				d.add(at, path, f.key+" is missing")
			case e == nil && f.required && other == nil:
				d.add(at, path, f.key+", or "+f.alternative+", is missing")
			case e != nil && other != nil:
				d.add(other.location, path, f.key+" and "+f.alternative+" are both given")
			}
			continue
		}
		keys = append(keys, file)
		from := n.entry(file)
		switch {
		case e != nil && from != nil:
			d.add(from.location, path, f.key+" and "+file+" are both given")
		case from != nil:
			d.secretFile(from.value, join(path, file), f, v.Field(f.index))
		case e == nil && f.required:
			d.add(at, path, f.key+", or "+file+", is missing")
		}
	}
	rest := restOf(v.Type())
	if rest != nil {
		v.Field(rest.index).Set(reflect.MakeMap(rest.typ))
	}
	for _, e := range n.entries {
		switch {
		case slices.Contains(keys, e.key):
		case rest != nil:
			d.name(e, path, rest, v.Field(rest.index))
		default:
			reason := quoteUnlessSecret("unknown key ", e.key, "an unknown key")
			if _, shown := quoteIfHarmless(e.key); shown {
				reason += nearest.Hint("%s", e.key, keys)
			}
			d.add(e.location, path, reason)
		}
	}
}

// names decodes a mapping from names, of topics or subscriptions, into the map v.
func (d *decoder) names(n *node, path string, f *field, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range n.entries {
		d.name(e, path, f, v)
	}
}

// items decodes a list of leaves into the slice v.
func (d *decoder) items(n *node, path string, f *field, v reflect.Value) {
	if n.kind != list || len(n.items) == 0 {
		d.add(n.location, path, "is no list with values, such as ["+f.example+"]")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		l, _ := leafOf(v.Index(i))
		d.leaf(item, path, f, l)
	}
}

// name decodes one entry of a mapping from names into the map v.
func (d *decoder) name(e *entry, path string, f *field, v reflect.Value) {
	if backend.CheckName(e.key) != nil {
		d.add(e.location, path, quoteUnlessSecret("the key ", e.key, "a key")+": "+errBadName.Error())
		return
	}
	item := reflect.New(v.Type().Elem()).Elem()
	d.value(e.value, e.location, join(path, e.key), f, item)
	v.SetMapIndex(reflect.ValueOf(e.key), item)
}

// leaf decodes n, a value without keys below it, into l.
func (d *decoder) leaf(n *node, path string, f *field, l leaf) {
	text, shown, ok := d.text(n, path, f, l)
	if !ok {
		return
	}
	if err := l.parse(text, f); err != nil {
		reason := err.Error()
		if text != n.text && reveals(reason, text) { // text has the value of a variable
			reason = "it must be: " + l.noun(f)
		}
		d.add(n.location, path, shown+reason)
	}
}

// reveals reports whether reason has a word or a number of text.
func reveals(reason, text string) bool {
	for _, is := range []func(rune) bool{unicode.IsLetter, unicode.IsDigit} {
		for _, part := range strings.FieldsFunc(text, func(r rune) bool { return !is(r) }) {
			if len(part) > 1 && strings.Contains(reason, part) {
				return true
			}
		}
	}
	return false
}

// text returns the text of n, with variables filled in. shown is the part of the text that
// an error may show, and ok is false if n cannot be the text of l.
func (d *decoder) text(n *node, path string, f *field, l leaf) (text, shown string, ok bool) {
	isSecret := f.typ == reflect.TypeFor[secret]()
	if s, ok := quoteIfHarmless(n.text); ok && !isSecret {
		shown = s + ": "
	}
	switch {
	case n.kind != scalar:
		d.add(n.location, path, "is "+n.noun()+"; it must be: "+l.noun(f))
		return "", "", false
	case n.tag == "!!null":
		d.add(n.location, path, "has no value; leave the key out for its default")
		return "", "", false
	case !slices.Contains([]string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}, n.tag):
		d.add(n.location, path, "is "+n.noun()+"; it must be: "+l.noun(f))
		return "", "", false
	}
	text, used, err := expand(n.text, d.environment)
	switch {
	case err != nil:
		d.add(n.location, path, err.Error())
		return "", "", false
	case used:
		if shown != "" {
			shown = strings.TrimSuffix(shown, ": ") + ", filled in: "
		}
		return text, shown, true
	case l.style() == textStyle && n.tag != "!!str":
		d.add(n.location, path, shown+"is "+n.noun()+"; it must be: "+l.noun(f)+" (write it in quotes)")
		return "", "", false
	case l.style() == plainStyle && n.tag == "!!str" && text != f.noneText && l.parse(text, f) == nil:
		d.add(n.location, path, shown+"is a text; it must be: "+l.noun(f)+" (write it without quotes)")
		return "", "", false
	}
	return text, shown, true
}

const maxSecret = 64 << 10

// secretFile sets v to the content of the file whose path n holds. The content is a secret.
func (d *decoder) secretFile(n *node, path string, f *field, v reflect.Value) {
	d.locations[path] = n.location
	var t text
	name, shown, ok := d.text(n, path, &field{}, &t)
	if !ok {
		return
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(d.file), name)
	}
	content, err := readAtMost(name, maxSecret)
	if err != nil {
		d.add(n.location, path, shown+err.Error())
		return
	}
	content = strings.TrimSuffix(strings.TrimSuffix(content, "\n"), "\r")
	l, _ := leafOf(v)
	if err := l.parse(content, f); err != nil {
		d.add(n.location, path, shown+"the content of the file: "+err.Error())
	}
}

// readAtMost returns a file's content, unless the file is larger than limit bytes. Its errors
// do not contain the name.
func readAtMost(name string, limit int64) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", unnamed(err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return "", unnamed(err)
	case int64(len(content)) > limit:
		return "", fmt.Errorf("larger than %d bytes", limit)
	}
	return string(content), nil
}

// unnamed removes the file name from an error.
func unnamed(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return errors.New("cannot be read")
}
