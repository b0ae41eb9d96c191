package checkup

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/cmd/eventbus/internal/plural"
	"github.com/seed41896749/eventbus/presence"
)

// settings reports settings that differ between the members of a group. It leaves out processes that started recently,
// because they may belong to a deployment in progress.
func (r *run) settings(ctx context.Context) error {
	var all []presence.Process
	err := call(ctx, func(ctx context.Context) (err error) {
		all, err = presence.Processes(ctx, r.backend)
		return err
	})
	if err != nil {
		r.unseen("the settings of members: %v", err)
		return nil
	}
	if !slices.ContainsFunc(all, func(p presence.Process) bool { return !p.Silent }) {
		r.unseen("the settings of members, because no process announces itself")
		return nil
	}
	for i := range all {
		if n := all[i].More; n > 0 {
			r.unseen("%s of %s, which its heartbeat leaves out", plural.Of(n, "subscription"), all[i].Name)
		}
	}
	settled := slices.DeleteFunc(all, func(p presence.Process) bool { return r.since(p.Started) < r.Late })
	type group struct{ topic, name string }
	differ, order := map[group][]string{}, []group{}
	severe := map[group]backend.Severity{}
	for _, s := range presence.Compare(settled) {
		if !s.Differs() {
			continue
		}
		at := group{s.Topic, s.Group}
		if differ[at] == nil {
			order, severe[at] = append(order, at), backend.SeverityNote
		}
		if !s.Sizes() {
			severe[at] = backend.SeverityWarning
		}
		differ[at] = append(differ[at], valuesOf(s))
	}
	for _, at := range order {
		r.find(severe[at], "settings-differ", at.topic, at.name, "The members have different settings: "+strings.Join(differ[at], "; ")+".",
			"start all members with the same settings", "eventbus", "processes", "--settings")
	}
	return nil
}

// valuesOf lists the values of a setting with their processes, at most three for each.
func valuesOf(s presence.Setting) string {
	values := make([]string, len(s.Values))
	for i, v := range s.Values {
		names := v.Processes
		if more := len(names) - 3; more > 0 {
			names = append(slices.Clone(names[:3]), fmt.Sprintf("%d more", more))
		}
		text := v.Text
		if text == "" {
			text = "not set"
		}
		values[i] = text + " in " + strings.Join(names, ", ")
	}
	return s.Name + " is " + strings.Join(values, ", and ")
}
