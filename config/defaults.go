package config

import "reflect"

// Defaults are the keys of a subscription that every subscription of the file inherits. The model
// of a subscription describes them too; [allFields] leaves out the keys that name its events.
type defaults subscription

// keysWithoutDefault are the keys of a subscription that have no default.
var keysWithoutDefault = []string{"topic", "topics", "group"}

// inheritDefaults gives each subscription the keys of bus.defaults that it does not have itself, at any
// depth. A mistake in the defaults is reported once: the subscriptions then inherit nothing.
func inheritDefaults(root *node, d *decoder) {
	from, to := root.at("bus", "defaults"), root.at("bus", "subscriptions")
	if from == nil || to == nil || from.kind != mapping || to.kind != mapping {
		return
	}
	trial := &decoder{problems: &problems{file: d.file}, environment: d.environment, locations: map[string]location{}}
	var v defaults
	trial.keys(from, from.location, "", reflect.ValueOf(&v).Elem())
	if len(trial.list) > 0 {
		return
	}
	for _, e := range to.entries {
		e.value = e.value.overlay(from)
	}
}

// at returns the node below n at a path of keys, or nil.
func (n *node) at(keys ...string) *node {
	for _, key := range keys {
		e := n.entry(key)
		if e == nil {
			return nil
		}
		n = e.value
	}
	return n
}

// overlay returns n with the entries of from that it does not have. If both have an entry, and both
// are mappings, the rule applies below it. Aliases share nodes, so over changes none.
func (n *node) overlay(from *node) *node {
	if n.kind != mapping || from.kind != mapping {
		return n
	}
	merged := *n
	merged.entries = nil
	for _, e := range n.entries {
		if inherited := from.entry(e.key); inherited != nil {
			e = &entry{location: e.location, key: e.key, value: e.value.overlay(inherited.value)}
		}
		merged.entries = append(merged.entries, e)
	}
	for _, e := range from.entries {
		if n.entry(e.key) == nil {
			merged.entries = append(merged.entries, e)
		}
	}
	return &merged
}
