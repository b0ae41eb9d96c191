// Package layers_test checks which packages a program links when it imports one of ours.
package layers_test

import (
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/seed41896749/eventbus"

var update = flag.Bool("update", false, "write testdata/root.deps")

// Beginnings of import paths that only some packages of this module may link.
var (
	redis     = "github.com/redis/"
	nats      = "github.com/nats-io/"
	testify   = "github.com/stretchr/testify"
	yaml      = "go.yaml.in/yaml"
	oldYAML   = "gopkg.in/yaml"
	olderYAML = "go.yaml.in/yaml/v3"
	cobra     = "github.com/spf13/cobra"
	otelSDK   = "go.opentelemetry.io/otel/sdk"
	otel      = "go.opentelemetry.io/"
	prom      = "github.com/prometheus/"
	protobuf  = "google.golang.org/protobuf"
	cbor      = "github.com/fxamacker/cbor"
	bbolt     = "go.etcd.io/bbolt"

	// Test support, which starts and harms servers.
	redistest  = module + "/internal/testing/redistest"
	natstest   = module + "/internal/testing/natstest"
	testproc   = module + "/internal/testing/testproc"
	testcerts  = module + "/internal/testing/testcerts"
	faultproxy = module + "/internal/testing/faultproxy"

	// The parts of the conformance suite. Its root imports all of them. A law imports only
	// its environment.
	suiteLaws    = module + "/conformance/internal/laws"
	suiteBusLaws = module + "/conformance/internal/laws/bus"
	suiteBusLaw  = module + "/conformance/internal/buslaw"
	suiteRunner  = module + "/conformance/internal/runner"
	suiteReport  = module + "/conformance/internal/report"
	suiteFaults  = module + "/conformance/internal/faults"
	suiteBroker  = module + "/conformance/internal/faultbroker"
	engine       = module + "/internal/engine"
)

var (
	everything = append([]string{otel}, telemetry...)
	telemetry  = []string{redis, nats, testify, yaml, oldYAML, cobra, otelSDK, prom, protobuf, cbor, bbolt, redistest, natstest, testproc, testcerts, faultproxy}
)

// rows holds the packages that each package must not link. A package without a row fails.
var rows = []struct {
	pkg string // below the module; "" is the root
	not []string
}{
	{"", everything},
	{"backend", everything},
	{"internal/batch", everything},
	{"internal/publish", everything},
	{"internal/engine", everything},
	{"internal/ledger", everything},
	{"internal/later", everything},
	{"internal/pattern", everything},
	{"internal/partition", everything},
	{"limiter", everything},
	{"limiter/rate", everything},
	{"observer", everything},
	{"inmemory", everything},
	{"internal/pool", everything},
	{"internal/wait", everything},
	{"internal/brokerurl", everything},
	{"internal/bytesize", everything},
	{"internal/slab", everything},
	{"bolt", []string{redis, nats, testify, yaml, oldYAML, cobra, otel, prom, protobuf, cbor, redistest, faultproxy, natstest, testproc, testcerts}},
	{"redisstream", []string{nats, bbolt, testify, yaml, oldYAML, cobra, otel, prom, redistest, faultproxy, natstest, testproc, testcerts}},
	{"nats", []string{redis, bbolt, testify, yaml, oldYAML, cobra, otel, prom, redistest, faultproxy, natstest, testproc, testcerts}},
	{"middleware", everything},
	{"results", everything},
	{"request", everything},
	{"scale", everything},
	{"lifecycle", everything},
	{"presence", everything},
	{"service", everything},
	{"store", everything},
	{"store/storetest", everything},
	{"store/natsstore", []string{redis, testify, yaml, oldYAML, cobra, otel, prom, redistest, faultproxy, natstest, testproc, testcerts, module + "/internal"}},
	{"store/redisstore", []string{nats, testify, yaml, oldYAML, cobra, otel, prom, redistest, faultproxy, natstest, testproc, testcerts, module + "/internal"}},
	{"observer/telemetry", telemetry},
	{"cenkalti", everything},
	{"deadletter", everything},
	{"console", []string{redis, nats, bbolt, testify, yaml, oldYAML, cobra, otel, otelSDK, prom, protobuf, redistest, natstest, testproc, testcerts, faultproxy}},
	{"internal/groupstats", everything},
	{"internal/operator", everything},
	{"internal/pages", everything},
	{"internal/cloudevent", everything},
	{"internal/letter", everything},
	{"codec", everything},
	{"codec/cbor", []string{redis, nats, testify, yaml, oldYAML, cobra, otelSDK, protobuf}},
	{"codec/protobuf", []string{redis, nats, testify, yaml, oldYAML, cobra, otelSDK, cbor}},
	{"eventbustest", everything},
	{"config", []string{redis, nats, bbolt, testify, oldYAML, olderYAML, cobra, otel, prom, redistest, faultproxy}},
	{"conformance", []string{redis, nats, bbolt, yaml, cobra, otel, prom, redistest, faultproxy, suiteFaults, suiteBroker}},
	{"conformance/internal/watch", []string{engine}},
	{"conformance/internal/law", []string{suiteLaws, suiteBusLaw, suiteRunner, suiteReport}},
	{"conformance/internal/buslaw", []string{suiteLaws, suiteRunner, suiteReport}},
	{"conformance/internal/laws/contract", []string{suiteBusLaws, suiteBusLaw, suiteRunner, suiteReport}},
	{"conformance/internal/laws/bus", []string{suiteRunner, suiteReport}},
	{"conformance/internal/runner", []string{suiteLaws, suiteBusLaw}},
	{"internal/testing/faultproxy", []string{redis, nats, testify, yaml, oldYAML, cobra, otel, prom, redistest}},
	{"internal/testing/redistest", []string{nats, testify, yaml, oldYAML, cobra, otel, prom, faultproxy}},
}

func TestLayers(t *testing.T) {
	for _, r := range rows {
		pkg := strings.TrimSuffix(module+"/"+r.pkg, "/")
		t.Run(pkg, func(t *testing.T) {
			for _, dep := range deps(t, pkg) {
				for _, not := range r.not {
					if strings.HasPrefix(dep, not) {
						t.Errorf("%s links %s; go list -deps, or go mod why, shows through whom", pkg, dep)
					}
				}
			}
		})
	}
}

// In the picture of CONTRIBUTING.md each package stands above every drawn package that it
// imports, and every drawn package exists.
func TestPicture(t *testing.T) {
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, picture, _ := strings.Cut(string(page), "<!-- layers -->\n```\n")
	picture, _, ok := strings.Cut(picture, "```")
	if !ok {
		t.Fatal("CONTRIBUTING.md has no picture behind <!-- layers -->")
	}
	line := map[string]int{}
	for i, text := range strings.Split(strings.TrimSpace(picture), "\n") {
		packages, _, _ := strings.Cut(text, "|")
		for _, name := range strings.Fields(packages) {
			pkg := module + "/" + name
			if name == "eventbus" {
				pkg = module
			}
			line[pkg] = i
		}
	}
	for pkg, own := range line {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, pkg).Output()
		if err != nil {
			t.Errorf("%s is drawn and cannot be listed: %v", pkg, err)
		}
		for _, imported := range strings.Fields(string(out)) {
			if its, drawn := line[imported]; drawn && its <= own {
				t.Errorf("%s imports %s, which does not stand below it", pkg, imported)
			}
		}
	}
}

// TestRootDeps compares the packages that the bus links with a list. A new line in the
// list needs a decision (docs/decisions/001-dependencies.md).
func TestRootDeps(t *testing.T) {
	const golden = "testdata/root.deps"
	got := strings.Join(deps(t, module), "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s links:\n%s\n%s says:\n%s\nif this is meant: go test ./internal/layers -update", module, got, golden, want)
	}
}

// deps lists the packages that pkg links beyond the standard library, sorted.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	list := strings.Fields(string(out))
	slices.Sort(list)
	return list
}
