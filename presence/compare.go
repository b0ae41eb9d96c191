package presence

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Setting is one setting with which the members of a group run.
type Setting struct {
	Topic  string  `json:"topic"` // as in the Subscriptions
	Group  string  `json:"group"`
	Name   string  `json:"setting"` // as in [Settings]
	Values []Value `json:"values"`  // one if the members agree; otherwise the most frequent first
}

// A Value is the value of a setting in some processes.
type Value struct {
	Text      string   `json:"value"`     // empty if the setting is not set
	Processes []string `json:"processes"` // the names of the processes, sorted; with part of the ID if several have the same name
}

// Differs reports whether members have different values.
func (s Setting) Differs() bool { return len(s.Values) > 1 }

// Sizes reports whether the setting only says how much one process does at a time, such as
// Concurrency. Members on different machines may differ in it on purpose.
func (s Setting) Sizes() bool {
	return slices.Contains([]string{"Concurrency", "MaxConcurrency", "MaxRedelivered", "MaxInFlight", "MaxBytes", "Limiter"}, s.Name)
}

// String returns the setting with its values, such as
// "orders/billing: Lease is 30s in shop@a/71, and 1m0s in shop@b/40".
func (s Setting) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s: %s is ", s.Topic, s.Group, s.Name)
	for i, v := range s.Values {
		if i > 0 {
			b.WriteString(", and ")
		}
		fmt.Fprintf(&b, "%s in %s", cmp.Or(v.Text, "not set"), strings.Join(v.Processes, " and "))
	}
	return b.String()
}

// Compare returns the settings in effect in each group, sorted by topic, group and name. It leaves
// out silent processes. Two members belong to one group if the texts of their topics and groups are
// the same, so a member with a pattern is not compared with a member with one of its topics.
func Compare(processes []Process) (all []Setting) {
	groups := map[[2]string][]member{}
	named := map[string]int{}
	for i := range processes {
		named[processes[i].Name]++
	}
	for i := range processes {
		p := &processes[i]
		if p.Silent {
			continue
		}
		for j := range p.Subscriptions {
			s := &p.Subscriptions[j]
			at := [2]string{s.Topic, s.Group}
			name := p.Name
			if named[name] > 1 { // buses of one process
				name += "#" + p.ID[:min(len(p.ID), 4)]
			}
			groups[at] = append(groups[at], member{name, s.Settings})
		}
	}
	for at, members := range groups {
		for name, values := range valuesOf(members) {
			all = append(all, Setting{at[0], at[1], name, values})
		}
	}
	slices.SortFunc(all, func(a, b Setting) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// A member is a subscription of a process.
type member struct {
	process  string
	settings map[string]string
}

// valuesOf returns the values of each setting, by its name.
func valuesOf(members []member) map[string][]Value {
	values := map[string][]Value{}
	for _, m := range members {
		for name := range m.settings {
			values[name] = nil
		}
	}
	for name := range values {
		processes := map[string]map[string]bool{} // by the value
		for _, m := range members {
			v := m.settings[name]
			if processes[v] == nil {
				processes[v] = map[string]bool{}
			}
			processes[v][m.process] = true
		}
		for v, of := range processes {
			values[name] = append(values[name], Value{v, slices.Sorted(maps.Keys(of))})
		}
		slices.SortFunc(values[name], func(a, b Value) int {
			return cmp.Or(cmp.Compare(len(b.Processes), len(a.Processes)), cmp.Compare(a.Text, b.Text))
		})
	}
	return values
}
