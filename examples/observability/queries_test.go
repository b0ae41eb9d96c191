package main

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// existing returns the names of the metrics that a bus has, each with its labels.
func existing(t *testing.T) map[string]map[string]bool {
	i, err := newInstruments(telemetry.Options{})
	require.NoError(t, err)
	o := i.options(observer.Observer{})
	o.Topics = map[string]eventbus.TopicOptions{"divided": {Partitions: 2}}
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), o)
	require.NoError(t, err)
	stop, err := i.telemetry.Watch(bus)
	require.NoError(t, err)
	defer stop()
	_, err = bus.Subscribe(t.Context(), "divided", eventbus.SubscribeOptions{Group: "billing"}, func(context.Context, *eventbus.Delivery) error { return nil })
	require.NoError(t, err)
	require.NoError(t, live(t.Context(), i, bus, "orders", &bank{}))
	require.Error(t, bus.Publish(t.Context(), "orders", &eventbus.Event{ID: strings.Repeat("x", 1000)}), "a failure of Publish")
	time.Sleep(time.Minute)
	synctest.Wait()
	hooks, about := i.telemetry.Observer(), observer.About{Topic: "orders", Group: "billing"}
	hooks.Dropped(observer.Dropped{Topic: "orders", Events: 1})
	hooks.Discarded(observer.Discarded{About: about, Reason: "dropped"})
	hooks.Extended(observer.Extended{Topic: "orders", Group: "billing", Events: 1})
	hooks.LeaseLost(observer.LeaseLost{About: about})
	hooks.Stuck(observer.Stuck{About: about})
	hooks.Failed(observer.Failed{Scope: observer.Ack, About: about, Err: eventbus.ErrUnavailable})
	hooks.Failed(observer.Failed{Scope: observer.Observe, Events: 1, Err: observer.ErrDropped})
	families, err := i.registry.Gather()
	require.NoError(t, err)
	require.NoError(t, bus.Shutdown(context.WithoutCancel(t.Context())))
	return labelsOf(families)
}

func labelsOf(families []*dto.MetricFamily) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, f := range families {
		known := map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				known[l.GetName()] = true
			}
		}
		if f.GetType() != dto.MetricType_HISTOGRAM {
			all[f.GetName()] = known
			continue
		}
		all[f.GetName()+"_count"], all[f.GetName()+"_sum"] = known, known
		bucket := map[string]bool{model.BucketLabel: true}
		for name := range known {
			bucket[name] = true
		}
		all[f.GetName()+"_bucket"] = bucket
	}
	return all
}

// Every metric and label in the dashboard and in the alerts exists. The dashboard shows
// every metric of the bus' own.
func TestQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, used := existing(t), map[string]bool{}
		dashboard := dashboardQueries(t)
		require.Greater(t, len(dashboard), 20)
		alerts := alertQueries(t)
		require.Greater(t, len(alerts), 8)
		for name, query := range alerts {
			check(t, "alert "+name, query, known, map[string]bool{})
		}
		for name, query := range dashboard {
			check(t, name, query, known, used)
		}
		for name := range known {
			base := regexp.MustCompile(`_(count|sum|bucket)$`).ReplaceAllString(name, "")
			if strings.HasPrefix(name, "eventbus_") && !used[name] && !used[base+"_bucket"] && !used[base+"_sum"] {
				t.Errorf("the dashboard does not show %s", name)
			}
		}
	})
}

// check compares the metrics and labels of a query with the known ones.
func check(t *testing.T, where, query string, known map[string]map[string]bool, used map[string]bool) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	require.NoError(t, err, "%s: %s", where, query)
	inQuery := map[string]bool{}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			require.NotNil(t, known[v.Name], "%s uses %s, which does not exist: %s", where, v.Name, query)
			used[v.Name] = true
			for name := range known[v.Name] {
				inQuery[name] = true
			}
			for _, m := range v.LabelMatchers {
				require.True(t, m.Name == model.MetricNameLabel || known[v.Name][m.Name], "%s: %s has no label %s", where, v.Name, m.Name)
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, name := range a.Grouping {
				require.True(t, inQuery[name], "%s: no metric of the query has the label %s: %s", where, name, query)
			}
		}
		return nil
	})
}

// dashboardQueries returns the queries by panel, with values in place of Grafana's variables.
func dashboardQueries(t *testing.T) map[string]string {
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &d))
	variables := strings.NewReplacer("$__rate_interval", "1m", "$topic", "orders", "$group", "billing")
	queries := map[string]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries[p.Title+" "+target.RefID] = variables.Replace(target.Expr)
			for _, l := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Contains(t, target.Expr, l[1], "the legend of %s", p.Title)
			}
		}
	}
	for _, v := range d.Templating.List {
		if m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Query); m != nil {
			queries["variable "+v.Name] = "count by (" + m[2] + ") (" + m[1] + ")"
		}
	}
	return queries
}

// alertQueries returns the queries by alert.
func alertQueries(t *testing.T) map[string]string {
	text, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	queries := map[string]string{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			queries[r.Alert] = r.Expr
			for _, l := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"], -1) {
				require.Contains(t, r.Expr, l[1], "the summary of %s", r.Alert)
			}
		}
	}
	return queries
}
