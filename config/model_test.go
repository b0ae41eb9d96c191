package config

import (
	commandline "flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus"
)

var update = commandline.Bool("update", false, "write what is generated: testdata/schema.json and the tables of docs/config.md")

// notData lists the options that only a program can set.
var notData = []string{
	"Options.Observer", "Options.Middleware", "Options.PublishMiddleware", "Options.ErrorClasses",
	"SubscribeOptions.Limiter", "SubscribeOptions.Retry.Delay", "SubscribeOptions.OnDeadLetter",
}

// every calls f with each field that holds a single value.
func every(t reflect.Type, path string, v reflect.Value, f func(path string, v reflect.Value)) {
	for i := range t.NumField() {
		if !t.Field(i).IsExported() {
			continue // no option of the program
		}
		name := path + "." + t.Field(i).Name
		if field := t.Field(i).Type; field.Kind() == reflect.Struct && !slices.Contains(notData, name) {
			every(field, name, v.Field(i), f)
			continue
		}
		f(name, v.Field(i))
	}
}

// Each option is a key of the file or listed in notData.
func TestEveryOptionIsAKey(t *testing.T) {
	keys := map[string]int{}
	for _, o := range options {
		keys[o.field]++
	}
	options := map[string]bool{"SubscribeOptions.Retry": true} // the loop below adds its fields
	check := func(path string, _ reflect.Value) {
		options[path] = true
		if slices.Contains(notData, path) {
			require.Zero(t, keys[path], "%s is no data", path)
			return
		}
		require.Equal(t, 1, keys[path], "%s is set by one key of config's model, or is listed as no data", path)
	}
	for _, o := range []any{eventbus.Options{}, eventbus.SubscribeOptions{}, eventbus.Batch{}} {
		every(reflect.TypeOf(o), reflect.TypeOf(o).Name(), reflect.ValueOf(o), check)
	}
	for field := range keys {
		require.True(t, options[field], "%s exists", field)
	}
	for _, field := range notData {
		require.True(t, options[field], "%s exists", field)
	}
}

// all returns the keys of t and below by path.
func all(t reflect.Type, path string) map[string]*field {
	m := map[string]*field{}
	for _, f := range fields(t) {
		p := join(path, f.key)
		m[p] = f
		switch _, isLeaf := leafOf(reflect.New(f.typ).Elem()); {
		case isLeaf:
		case f.typ.Kind() == reflect.Struct:
			for k, v := range all(f.typ, p) {
				m[k] = v
			}
		case f.typ.Elem().Kind() == reflect.Struct:
			for k, v := range all(f.typ.Elem(), p+".NAME") {
				m[k] = v
			}
		}
	}
	return m
}

// at returns the value at a path below v.
func at(v reflect.Value, path string) reflect.Value {
	key, rest, nested := strings.Cut(path, ".")
	for _, f := range fields(v.Type()) {
		switch {
		case f.key == key && nested:
			return at(v.Field(f.index), rest)
		case f.key == key:
			return v.Field(f.index)
		}
	}
	return reflect.Value{}
}

// Each key has a description, and each stated default is the bus's default.
func TestStatedDefaults(t *testing.T) {
	var m model
	m.Bus.Subscriptions = map[string]subscription{}
	var s subscription
	for path, f := range all(reflect.TypeFor[model](), "") {
		require.True(t, strings.HasSuffix(f.doc, "."), "%s is described in sentences", path)
		if f.defaultText == "" {
			continue
		}
		v, below := reflect.ValueOf(&m.Bus).Elem(), strings.TrimPrefix(path, "bus.")
		if rest, ok := strings.CutPrefix(below, "subscriptions.NAME."); ok {
			v, below = reflect.ValueOf(&s).Elem(), rest
		}
		l, ok := leafOf(at(v, below))
		require.True(t, ok, path)
		require.NoError(t, l.parse(f.defaultText, f), path)
	}
	want, got := eventbus.Options{}.Effective(), m.Bus.options()
	want.Service = "" // the program decides
	require.Equal(t, fmt.Sprintf("%+v", plainOptions(want)), fmt.Sprintf("%+v", plainOptions(got)))
	s.Group = "g"
	effective, err := eventbus.SubscribeOptions{Group: "g"}.Effective("t")
	require.NoError(t, err)
	effective.DeadLetter, effective.Timeout = "", 0 // the topic and the bus decide
	effective.MaxConcurrency = 0                    // Concurrency decides
	require.Equal(t, effective, s.options())
	batches, err := eventbus.Batch{}.Effective()
	require.NoError(t, err)
	require.Equal(t, batches, s.Batch.options())
}

// plainOptions removes the functions, so that options can be compared.
func plainOptions(o eventbus.Options) eventbus.Options {
	return eventbus.Options{
		Service: o.Service, Instance: o.Instance, Timeout: o.Timeout, OpenTimeout: o.OpenTimeout, PublishTimeout: o.PublishTimeout, DrainTimeout: o.DrainTimeout, Dedup: o.Dedup, MaxPayload: o.MaxPayload,
		MaxPending: o.MaxPending, MaxPendingBytes: o.MaxPendingBytes, WhenFull: o.WhenFull, Topics: o.Topics,
	}
}

// samples has a value other than the default for each key that sets an option.
var samples = map[string]string{
	"service": "x", "instance": "x", "open_timeout": "7s", "publish_timeout": "7s", "drain_timeout": "7s", "dedup": "true", "max_payload": "7KiB", "max_pending": "7", "max_pending_bytes": "7MB", "when_full": "reject",
	"group": "x", "ack": "on-receive", "order": "none", "start": "latest", "concurrency": "7..8", "max_in_flight": "77", "max_bytes": "7MB",
	"lease": "7s", "timeout": "7s", "retry.attempts": "7", "retry.backoff": "7s..77s", "retry.jitter": "0.7", "dead_letter": "x", "on_failure": "fail-all",
	"leave_timeouts": "true", "max_receive": "7MB", "dead_letter_expired": "true", "dead_letter_on_receive": "true", "retry.rules": "{x: {attempts: 7}}",
	"limits.redelivered": "3", "topics": "{x: {keep: 7h}}",
	"batch.size": "7", "batch.bytes": "7MB", "batch.wait": "7s",
}

// Each key sets its option, and no other.
func TestEachKeySetsItsOption(t *testing.T) {
	for _, o := range options {
		if o.path == "retry" {
			continue
		}
		sample, ok := samples[o.path]
		if o.field == "SubscribeOptions.Topics" { // the bus has a key of the same name
			sample = "[x, 'y.*']"
		}
		require.True(t, ok, "a sample for %s", o.path)
		text := sample
		if name, rest, nested := strings.Cut(o.path, "."); nested {
			text = "{" + rest + ": " + sample + "}"
			require.Contains(t, []string{"retry", "limits", "batch"}, name)
		}
		key, _, _ := strings.Cut(o.path, ".")
		var file string
		if strings.HasPrefix(o.field, "Options.") {
			file = fmt.Sprintf("bus: {url: 'mem:', %s: %s, subscriptions: {s: {topic: t, group: g}}}", key, text)
		} else {
			group, topic := ", group: g", "topic: t"
			switch key {
			case "topics": // in place of topic
				group, topic = "group: g", ""
			case "group":
				group = ""
			case "limits":
				group += ", concurrency: 7" // redelivered is less
			case "dead_letter_on_receive":
				group += ", ack: on-receive"
			}
			file = fmt.Sprintf("bus: {url: 'mem:', subscriptions: {s: {%s%s, %s: %s}}}", topic, group, key, text)
		}
		c, err := Parse("f", []byte(file), nil)
		require.NoError(t, err, file)
		_, so, err := c.Subscription("s")
		require.NoError(t, err)
		if key != "group" {
			so.Group = ""
		}
		switch key {
		case "limits":
			so.Concurrency, so.MaxConcurrency = 0, 0
		case "dead_letter_on_receive":
			so.Ack = eventbus.AckOnSuccess
		}
		var set []string
		note := func(path string, v reflect.Value) {
			if !v.IsZero() {
				set = append(set, path)
			}
		}
		every(reflect.TypeFor[eventbus.Options](), "Options", reflect.ValueOf(c.Options()), note)
		every(reflect.TypeFor[eventbus.SubscribeOptions](), "SubscribeOptions", reflect.ValueOf(so), note)
		every(reflect.TypeFor[eventbus.Batch](), "Batch", reflect.ValueOf(c.Batch("s")), note)
		require.Contains(t, set, o.field)
		for _, other := range set {
			require.Contains(t, options, option{other, o.path})
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "if this is meant: go test ./config -update")
}

// docs/config.md lists every key with the model's description.
func TestDocs(t *testing.T) {
	const name = "../docs/config.md"
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	tables := map[string]string{
		"bus":          table(reflect.TypeFor[bus](), ""),
		"subscription": table(reflect.TypeFor[subscription](), ""),
		"rule":         table(reflect.TypeFor[rule](), ""),
		"schedule":     table(reflect.TypeFor[schedule](), ""),
		"topic":        table(reflect.TypeFor[topic](), ""),
	}
	got := string(text)
	for mark, table := range tables {
		between := regexp.MustCompile(`(?s)(<!-- keys of ` + mark + ` -->\n).*?(<!-- end -->)`)
		require.Regexp(t, between, got)
		got = between.ReplaceAllStringFunc(got, func(found string) string {
			return between.FindStringSubmatch(found)[1] + table + between.FindStringSubmatch(found)[2]
		})
	}
	golden(t, name, got)
	files := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(got, -1) {
		_, err := Parse("docs/config.md", []byte(block[1]), []string{"REDIS_PASSWORD=x"})
		require.NoError(t, err, block[1])
		files++
	}
	require.NotZero(t, files, "files that are shown")
}

// ownWords are the words of a value that stand for themselves.
var ownWords = regexp.MustCompile(`\((discard|each)\)`)

// table returns the table of the keys of t.
func table(t reflect.Type, path string) string {
	var b strings.Builder
	if path == "" {
		b.WriteString("| key | value | default | meaning |\n|--|--|--|--|\n")
	}
	for _, f := range fields(t) {
		l, isLeaf := leafOf(reflect.New(f.typ).Elem())
		if !isLeaf && f.typ.Kind() == reflect.Struct && f.typ != reflect.TypeFor[defaults]() {
			b.WriteString(table(f.typ, join(path, f.key)))
			continue
		}
		noun, fallback := "names (see below)", "–"
		if f.typ == reflect.TypeFor[defaults]() {
			noun = "keys (see below)"
		}
		if f.typ.Kind() == reflect.Slice {
			item, _ := leafOf(reflect.New(f.typ.Elem()).Elem())
			noun = "list: " + item.noun(f)
		}
		if isLeaf {
			noun = ownWords.ReplaceAllString(l.noun(f), "`$0`")
		}
		switch file, _ := f.file(); {
		case f.required && file != "" && f.typ == reflect.TypeFor[secret]():
			fallback = "this or `" + file + "` is required"
		case f.alternative != "":
			fallback = "this or `" + f.alternative + "` is required"
		case f.required:
			fallback = "required"
		case f.defaultText != "":
			fallback = "`" + f.defaultText + "`"
		}
		doc := f.doc
		if !slices.Contains([]string{"", "1", "1B", "1ms"}, f.min) { // a least value that only excludes zero
			doc += " At least " + f.min + "."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", join(path, f.key), noun, fallback, doc)
		if file, ok := f.file(); ok {
			fmt.Fprintf(&b, "| `%s` | path | – | %s |\n", join(path, file), fileDoc(f))
		}
	}
	return b.String()
}
