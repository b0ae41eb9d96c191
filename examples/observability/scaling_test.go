package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/observer/telemetry"
)

// scraped returns the metrics of a bus with a backlog of the group billing in the topic orders, as a scrape by
// Prometheus gets them.
func scraped(t *testing.T) []*dto.MetricFamily {
	i, err := newInstruments(telemetry.Options{})
	require.NoError(t, err)
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), i.options(observer.Observer{}))
	require.NoError(t, err)
	stop, err := i.telemetry.Watch(bus)
	require.NoError(t, err)
	defer stop()
	_, err = bus.Subscribe(t.Context(), "orders", eventbus.SubscribeOptions{Group: "billing"}, func(ctx context.Context, _ *eventbus.Delivery) error {
		<-ctx.Done()
		return ctx.Err()
	})
	require.NoError(t, err)
	for range 10 {
		require.NoError(t, bus.Publish(t.Context(), "orders", &eventbus.Event{Type: "order.placed"}))
	}
	synctest.Wait()
	request, answer := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody), httptest.NewRecorder()
	request.Header.Set("Accept", "text/plain;version=1.0.0;escaping=allow-utf-8") // of Prometheus 3
	promhttp.HandlerFor(i.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, request)
	require.Equal(t, http.StatusOK, answer.Code)
	texts := expfmt.NewTextParser(model.UTF8Validation)
	families, err := texts.TextToMetricFamilies(answer.Body)
	require.NoError(t, err)
	soon, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
	defer cancel()
	require.NoError(t, bus.Shutdown(soon))
	return slices.Collect(maps.Values(families))
}

// Every query by which a platform scales finds a series of a group's lag: its metric and all its
// labels exist.
func TestScalingQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		families := scraped(t)
		queries := scalingQueries(t)
		require.Len(t, queries, 3)
		for where, query := range queries {
			check(t, where, query, labelsOf(families), map[string]bool{})
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
			require.NoError(t, err)
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				if v, ok := n.(*parser.VectorSelector); ok {
					require.True(t, finds(families, v), "%s finds no series: %s", where, query)
				}
				return nil
			})
		}
	})
}

// finds reports whether a selector finds a series with a value above 0.
func finds(families []*dto.MetricFamily, v *parser.VectorSelector) bool {
	for _, f := range families {
		for _, m := range f.GetMetric() {
			series := map[string]string{model.MetricNameLabel: f.GetName()}
			for _, l := range m.GetLabel() {
				series[l.GetName()] = l.GetValue()
			}
			fits := func(want *labels.Matcher) bool { return want.Matches(series[want.Name]) }
			if m.GetGauge().GetValue() > 0 && !slices.ContainsFunc(v.LabelMatchers, func(want *labels.Matcher) bool { return !fits(want) }) {
				return true
			}
		}
	}
	return false
}

// read reads a manifest.
func read(t *testing.T, file string, manifest any) {
	t.Helper()
	text, err := os.ReadFile("scaling/" + file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, manifest))
}

// A reference names the Deployment that is scaled.
type reference struct {
	Ref struct{ Name string } `yaml:"scaleTargetRef"`
}

type scaledObject struct {
	Spec struct {
		reference `yaml:",inline"`
		Least     int `yaml:"minReplicaCount"`
		Triggers  []struct {
			Type     string
			Metadata map[string]string
		}
	}
}

type podAutoscaler struct {
	Spec struct {
		reference `yaml:",inline"`
		Least     int `yaml:"minReplicas"`
		Metrics   []struct {
			External struct {
				Metric struct {
					Name     string
					Selector struct {
						Labels map[string]string `yaml:"matchLabels"`
					}
				}
			}
		}
	}
}

type adapter struct {
	Rules struct {
		External []struct {
			Series string `yaml:"seriesQuery"`
			Query  string `yaml:"metricsQuery"`
			Name   struct{ As string }
		}
	}
}

// scalingQueries returns the queries of the manifests by their file. The adapter makes a query from its rule and
// the selector of a HorizontalPodAutoscaler.
func scalingQueries(t *testing.T) map[string]string {
	var keda scaledObject
	read(t, "keda.yaml", &keda)
	require.Len(t, keda.Spec.Triggers, 1)
	var rules adapter
	read(t, "prometheus-adapter.yaml", &rules)
	require.Len(t, rules.Rules.External, 1)
	var hpa podAutoscaler
	read(t, "hpa.yaml", &hpa)
	require.Len(t, hpa.Spec.Metrics, 1)
	rule, metric := rules.Rules.External[0], hpa.Spec.Metrics[0].External.Metric
	require.Equal(t, rule.Name.As, metric.Name, "the metric of the adapter is the one of hpa.yaml")
	series, _, _ := strings.Cut(rule.Series, "{")
	var matchers []string
	for name, value := range metric.Selector.Labels {
		matchers = append(matchers, fmt.Sprintf("%s=%q", name, value))
	}
	require.NotEmpty(t, matchers)
	query := strings.NewReplacer("<<.Series>>", series, "<<.LabelMatchers>>", strings.Join(matchers, ",")).Replace(rule.Query)
	return map[string]string{
		"keda.yaml":                              keda.Spec.Triggers[0].Metadata["query"],
		"seriesQuery of prometheus-adapter.yaml": rule.Series,
		"hpa.yaml with prometheus-adapter.yaml":  query,
	}
}

// The manifests scale the Deployment, never to zero, and its pods have more time to end than a drain takes. KEDA
// takes an unknown lag for an error. The page explains the query that KEDA has.
func TestScalingManifests(t *testing.T) {
	var deployment struct {
		Metadata struct{ Name string }
		Spec     struct {
			Template struct {
				Spec struct {
					Grace int `yaml:"terminationGracePeriodSeconds"`
				}
			}
		}
	}
	read(t, "deployment.yaml", &deployment)
	var keda scaledObject
	read(t, "keda.yaml", &keda)
	var hpa podAutoscaler
	read(t, "hpa.yaml", &hpa)
	require.Equal(t, deployment.Metadata.Name, keda.Spec.Ref.Name)
	require.Equal(t, deployment.Metadata.Name, hpa.Spec.Ref.Name)
	require.GreaterOrEqual(t, keda.Spec.Least, 1)
	require.GreaterOrEqual(t, hpa.Spec.Least, 1)
	require.Equal(t, "prometheus", keda.Spec.Triggers[0].Type)
	require.Equal(t, "false", keda.Spec.Triggers[0].Metadata["ignoreNullValues"])
	page, err := os.ReadFile("../../docs/scaling.md")
	require.NoError(t, err)
	query := keda.Spec.Triggers[0].Metadata["query"]
	require.True(t, strings.Contains(string(page), "```text\n"+query+"\n```"), "docs/scaling.md does not explain %s", query)
	grace := time.Duration(deployment.Spec.Template.Spec.Grace) * time.Second
	require.Greater(t, grace, eventbus.Options{}.Effective().DrainTimeout)
}
