package config

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Bounds on the size of a file. An alias counts as a copy of its target.
const (
	maxFile  = 1 << 20 // bytes
	maxNodes = 10_000
	maxDepth = 20
)

// A kind says whether a node is a scalar, a mapping or a list.
type kind uint8

const (
	scalar kind = iota
	mapping
	list
)

// A node is a value of the file, with aliases and merges resolved.
type node struct {
	location
	kind    kind
	tag     string // the YAML tag of a scalar, such as "!!int"
	text    string // the text of a scalar
	entries []*entry
	items   []*node // of a list
}

// An entry is a key of a mapping, and its value.
type entry struct {
	location
	key   string
	value *node
}

// entry returns the entry of key, or nil.
func (n *node) entry(key string) *entry {
	for _, e := range n.entries {
		if e.key == key {
			return e
		}
	}
	return nil
}

// readTree returns the tree of a YAML file, or nil if data is not a YAML mapping. It adds
// errors to p.
func readTree(data []byte, p *problems) *node {
	start := location{line: 1, column: 1}
	if len(data) > maxFile {
		p.add(start, "", "is larger than 1 MiB")
		return nil
	}
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		p.add(start, "", "cannot be read")
		return nil
	}
	var document, second yaml.Node
	switch err := loader.Load(&document); {
	case errors.Is(err, io.EOF):
		p.add(start, "", `is empty; it begins with "bus:"`)
		return nil
	case err != nil:
		p.add(syntax(err))
		return nil
	}
	switch err := loader.Load(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		p.add(syntax(err))
		return nil
	default:
		p.add(location{line: max(second.Line, 1), column: max(second.Column, 1)}, "", "is a second document; one file is one bus")
		return nil
	}
	r := reader{problems: p}
	if len(document.Content) != 1 {
		p.add(start, "", `is empty; it begins with "bus:"`)
		return nil
	}
	root := r.node(document.Content[0], 0)
	switch {
	case r.tooMuch:
		p.add(start, "", "is nested too deep, or its aliases make it too large")
		return nil
	case root.kind == scalar && root.tag == "!!null":
		p.add(start, "", `is empty; it begins with "bus:"`)
		return nil
	}
	return root
}

// syntax returns the location and the reason of a YAML error. The path between them is empty.
// The reason contains no text of the file.
func syntax(err error) (location, string, string) {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return location{line: 1, column: 1}, "", "is not YAML"
	}
	at := location{line: max(e.Mark.Line, 1), column: max(e.Mark.Column, 1)}
	switch {
	case strings.Contains(e.Message, "anchor"):
		return at, "", "an alias (*) has no anchor (&) before it"
	case e.Stage == yaml.ScannerStage || e.Stage == yaml.ParserStage:
		reason := "not YAML: " + e.Message
		if strings.Contains(reason, "mapping values") {
			reason += `; a text that ends with a colon, or has one and a space in it, is written in quotes, such as "mem:"`
		}
		return at, "", reason
	}
	return at, "", "not YAML in UTF-8"
}

// A reader converts nodes of the YAML library into nodes of this package.
type reader struct {
	problems *problems
	nodes    int
	tooMuch  bool
}

func (r *reader) node(y *yaml.Node, depth int) *node {
	at := location{line: y.Line, column: y.Column}
	if r.nodes++; r.nodes > maxNodes || depth > maxDepth {
		r.tooMuch = true
		return &node{location: at}
	}
	switch y.Kind {
	case yaml.AliasNode:
		return r.node(y.Alias, depth+1)
	case yaml.SequenceNode:
		n := &node{location: at, kind: list}
		for _, item := range y.Content {
			n.items = append(n.items, r.node(item, depth+1))
		}
		return n
	case yaml.MappingNode:
		return r.mapping(y, depth)
	default:
		return &node{location: at, tag: y.Tag, text: y.Value}
	}
}

func (r *reader) mapping(y *yaml.Node, depth int) *node {
	n := &node{location: location{line: y.Line, column: y.Column}, kind: mapping}
	var merged []*node
	for i := 0; i+1 < len(y.Content) && !r.tooMuch; i += 2 {
		key, value := y.Content[i], y.Content[i+1]
		at := location{line: key.Line, column: key.Column}
		switch {
		case key.Tag == "!!merge":
			merged = append(merged, r.merged(value, depth)...)
		case key.Kind != yaml.ScalarNode || key.Tag == "!!null":
			r.problems.add(at, "", "a key must be a word")
		default:
			if before := n.entry(key.Value); before != nil {
				r.problems.add(at, "", quoteUnlessSecret("the key ", key.Value, "a key")+" is here a second time; the first is at line "+strconv.Itoa(before.line))
				continue
			}
			n.entries = append(n.entries, &entry{location: at, key: key.Value, value: r.node(value, depth+1)})
		}
	}
	for _, m := range merged {
		for _, e := range m.entries {
			if n.entry(e.key) == nil {
				n.entries = append(n.entries, e)
			}
		}
	}
	return n
}

// merged returns the mappings that the merge key "<<" with the value y refers to.
func (r *reader) merged(y *yaml.Node, depth int) []*node {
	from := []*yaml.Node{y}
	if y.Kind == yaml.SequenceNode {
		from = y.Content
	}
	var found []*node
	for _, f := range from {
		n := r.node(f, depth+1)
		if n.kind != mapping {
			r.problems.add(location{line: f.Line, column: f.Column}, "", `"<<" takes a mapping, such as *name`)
			continue
		}
		found = append(found, n)
	}
	return found
}
