package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// shown are the attributes that the tree shows, by their short names.
var shown = []struct {
	key   attribute.Key
	short string
}{
	{"messaging.consumer.group.name", "group"},
	{"eventbus.attempt", "attempt"},
	{"eventbus.retry.delay", "delay"},
	{"eventbus.reason", "reason"},
	{"eventbus.dead_letter.topic", "to"},
	{"error.type", "error"},
}

// printTree prints the spans, in the order of their ends: children below their parent.
func (i *instruments) printTree(out io.Writer) {
	spans := i.spans.GetSpans()
	known := map[trace.SpanID]bool{}
	for _, s := range spans {
		known[s.SpanContext.SpanID()] = true
	}
	children := map[trace.SpanID]tracetest.SpanStubs{}
	for _, s := range spans {
		parent := s.Parent.SpanID()
		if !known[parent] {
			parent = trace.SpanID{}
		}
		children[parent] = append(children[parent], s)
	}
	printBranch(out, children, trace.SpanID{}, "")
}

func printBranch(out io.Writer, children map[trace.SpanID]tracetest.SpanStubs, of trace.SpanID, indent string) {
	for n, s := range children[of] {
		branch, below := "├─ ", "│  "
		if n == len(children[of])-1 {
			branch, below = "└─ ", "   "
		}
		if of == (trace.SpanID{}) {
			branch, below = "", ""
		}
		fmt.Fprintln(out, indent+branch+describe(s))
		printBranch(out, children, s.SpanContext.SpanID(), indent+below)
	}
}

func describe(s tracetest.SpanStub) string {
	parts := []string{s.Name}
	if s.Status.Code == codes.Error {
		parts = append(parts, "✗ "+s.Status.Description)
	}
	attributes := attribute.NewSet(s.Attributes...)
	for _, a := range shown {
		if v, ok := attributes.Value(a.key); ok {
			text := v.String()
			if v.Type() == attribute.FLOAT64 {
				text = fmt.Sprintf("%.2fs", v.AsFloat64())
			}
			parts = append(parts, a.short+"="+text)
		}
	}
	parts = append(parts, s.EndTime.Sub(s.StartTime).Round(10*time.Microsecond).String())
	return strings.Join(parts, "  ")
}
