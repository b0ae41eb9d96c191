package config

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The schema is equal to the published file.
func TestSchemaIsTheGoldenFile(t *testing.T) {
	golden(t, "testdata/schema.json", string(Schema()))
}

// The schema and Parse accept and refuse the same files in these rows.
func TestSchemaAgreesWithParse(t *testing.T) {
	var s map[string]any
	require.NoError(t, json.Unmarshal(Schema(), &s))
	sub := func(keys string) string {
		return `{"bus":{"url":"mem:","subscriptions":{"s":{"topic":"t","group":"g",` + keys + `}}}}`
	}
	topics := func(keys string) string {
		return `{"bus":{"url":"mem:","subscriptions":{"s":{"group":"g"` + keys + `}}}}`
	}
	for _, row := range []struct {
		file string
		good bool
	}{
		{topics(`,"topic":"shop.*"`), true},
		{topics(`,"topic":"shop.*.eu.>"`), true},
		{topics(`,"topic":">"`), true},
		{topics(`,"topic":"shop.>.eu"`), false},
		{topics(`,"topic":"shop*"`), false},
		{topics(`,"topics":["shop","orders.*","${NAME}"]`), true},
		{topics(`,"topics":[]`), false},
		{topics(`,"topics":"shop"`), false},
		{topics(`,"topics":[["shop"]]`), false},
		{topics(`,"topics":["shop"],"topic":"orders"`), false},
		{topics(``), false},
		{`{"bus":{"url":"mem:"}}`, true},
		{`{"bus":{"url_file":"testdata/url"}}`, true},
		{`{"bus":{}}`, false},
		{`{}`, false},
		{`{"bus":{"url":"mem:","url_file":"testdata/url"}}`, false},
		{`{"bus":{"url":"mem:","urll":"x"}}`, false},
		{`{"bus":{"url":"mem:","service":"a"}}`, true},
		{`{"bus":{"url":"mem:","service":3}}`, false},
		{`{"bus":{"url":"mem:","dedup":true}}`, true},
		{`{"bus":{"url":"mem:","dedup":"true"}}`, false},
		{`{"bus":{"url":"mem:","dedup":"${YES}"}}`, true},
		{`{"bus":{"url":"mem:","publish_timeout":"1m30s"}}`, true},
		{`{"bus":{"url":"mem:","publish_timeout":"none"}}`, true},
		{`{"bus":{"url":"mem:","publish_timeout":"30"}}`, false},
		{`{"bus":{"url":"mem:","publish_timeout":30}}`, false},
		{`{"bus":{"url":"mem:","max_pending":3}}`, true},
		{`{"bus":{"url":"mem:","max_pending":"3"}}`, false},
		{`{"bus":{"url":"mem:","max_pending":0}}`, false},
		{`{"bus":{"url":"mem:","max_pending":1.5}}`, false},
		{`{"bus":{"url":"mem:","max_pending":"${THREE}"}}`, true},
		{`{"bus":{"url":"mem:","max_pending_bytes":"64MiB"}}`, true},
		{`{"bus":{"url":"mem:","max_pending_bytes":"64mb"}}`, false},
		{`{"bus":{"url":"mem:","max_pending_bytes":"none"}}`, false},
		{`{"bus":{"url":"mem:","topics":{"a.b":{"replicas":3,"storage":"file","x":true}}}}`, true},
		{`{"bus":{"url":"mem:","topics":{"a.b":{"replicas":[3]}}}}`, false},
		{`{"bus":{"url":"mem:","topics":{"a..b":{}}}}`, false},
		{`{"bus":{"url":"mem:","subscriptions":{"s":{"topic":"t"}}}}`, false},
		{`{"bus":{"url":"mem:","subscriptions":{"s":{"topic":"t","group":"g h"}}}}`, false},
		{`{"bus":{"url":"mem:","subscriptions":{"a b":{"topic":"t","group":"g"}}}}`, false},
		{sub(`"ack":"on-receive"`), true},
		{sub(`"ack":"manual"`), false},
		{sub(`"order":"total"`), true},
		{sub(`"order":"by-name"`), false},
		{sub(`"start":"after 17-0"`), true},
		{sub(`"start":"after "`), false},
		{sub(`"start":"tomorrow"`), false},
		{sub(`"max_bytes":"none"`), true},
		{sub(`"lease":"none"`), false},
		{sub(`"dead_letter":"(discard)"`), true},
		{sub(`"dead_letter":"(drop)"`), false},
		{sub(`"retry":{"attempts":"unlimited","backoff":"1s..1m","jitter":0.5}`), true},
		{sub(`"retry":{"attempts":"none"}`), false},
		{sub(`"retry":{"attempts":0}`), false},
		{sub(`"retry":{"backoff":"1s"}`), false},
		{sub(`"retry":{"jitter":2}`), false},
		{sub(`"retry":{"tries":2}`), false},
		{sub(`"retry":[]`), false},
	} {
		var v any
		require.NoError(t, json.Unmarshal([]byte(row.file), &v), row.file)
		require.Equal(t, row.good, accepts(t, s, s, v), "schema: %s", row.file)
		_, err := Parse("f", []byte(row.file), []string{"YES=true", "THREE=3", "NAME=refunds"})
		require.Equal(t, row.good, err == nil, "Parse: %s: %v", row.file, err)
	}
}

// accepts evaluates the part of JSON Schema that ours uses; any other part fails the test.
func accepts(t *testing.T, root, s map[string]any, v any) bool {
	object, isObject := v.(map[string]any)
	text, isText := v.(string)
	number, isNumber := v.(float64)
	items, isList := v.([]any)
	_, isBool := v.(bool)
	good := true
	for keyword, arg := range s {
		switch keyword {
		case "$schema", "$defs", "title", "description", "examples", "default":
			continue
		case "type":
			one := false
			kinds, many := arg.([]any)
			if !many {
				kinds = []any{arg}
			}
			for _, kind := range kinds {
				is := map[any]bool{
					"object": isObject, "array": isList, "string": isText, "number": isNumber, "boolean": isBool,
					"integer": isNumber && number == float64(int(number)),
				}
				one = one || is[kind]
			}
			good = good && one
		case "items":
			for _, item := range items {
				good = good && accepts(t, root, arg.(map[string]any), item)
			}
		case "minItems":
			good = good && (!isList || float64(len(items)) >= arg.(float64))
		case "$ref":
			name := strings.TrimPrefix(arg.(string), "#/$defs/")
			good = good && accepts(t, root, root["$defs"].(map[string]any)[name].(map[string]any), v)
		case "enum":
			good = good && slices.Contains(arg.([]any), v)
		case "const":
			good = good && arg == v
		case "anyOf", "oneOf":
			n := 0
			for _, a := range arg.([]any) {
				if accepts(t, root, a.(map[string]any), v) {
					n++
				}
			}
			good = good && n > 0 && (keyword == "anyOf" || n == 1)
		case "pattern":
			good = good && (!isText || regexp.MustCompile(arg.(string)).MatchString(text))
		case "minLength":
			good = good && (!isText || float64(len(text)) >= arg.(float64))
		case "maxLength":
			good = good && (!isText || float64(len(text)) <= arg.(float64))
		case "minimum":
			good = good && (!isNumber || number >= arg.(float64))
		case "maximum":
			good = good && (!isNumber || number <= arg.(float64))
		case "required":
			for _, key := range arg.([]any) {
				_, has := object[key.(string)]
				good = good && (!isObject || has)
			}
		case "propertyNames":
			for key := range object {
				good = good && accepts(t, root, arg.(map[string]any), key)
			}
		case "properties":
			for key, p := range arg.(map[string]any) {
				if value, has := object[key]; has {
					good = good && accepts(t, root, p.(map[string]any), value)
				}
			}
		case "additionalProperties":
			known, _ := s["properties"].(map[string]any)
			for key, value := range object {
				if _, is := known[key]; is {
					continue
				}
				more, isSchema := arg.(map[string]any)
				good = good && isSchema && accepts(t, root, more, value)
			}
		default:
			t.Fatalf("the schema uses %q, which this test does not know", keyword)
		}
	}
	return good
}
