package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/seed41896749/eventbus/config"
)

// Parse panics on no file. No returned value or error shows the URL, given in the file or
// in the environment.
func FuzzParse(f *testing.F) {
	const secret = "hunter2"
	f.Add("bus:\n", "  subscriptions: {s: {topic: t, group: g}}\n", "")
	f.Add("bus:\n  service: |\n", "  max_pending: 3\n", "X=1")
	f.Add("bus: &a\n  <<: *a\n", "  lease: ${U}\n  service: ${X}\n", "X=30")
	f.Add("bus:\n  subscriptions:\n    s:\n      topic: ${U}\n      start:\n", "      group: \"${U}\"\n", "X=${U}")
	f.Add("bus:\n  topics:\n    t:\n", "      retry: {backoff: 1s..${U}, attempts: ${U}}\n", "X")
	f.Add("%TAG ! tag:\n--- !", "? - [", "=X")
	f.Fuzz(func(t *testing.T, before, after, environ string) {
		const url = "redis://user:" + secret + "@host"
		if strings.Contains(before+after+environ, secret) {
			return
		}
		text := before + "  url: " + url + "\n" + after
		c, err := config.Parse("f.yaml", []byte(text), append(strings.Split(environ, "\n"), "U="+url))
		if err != nil {
			hidden(t, text, secret, err.Error(), fmt.Sprintf("%+v", err))
			return
		}
		asJSON, _ := json.Marshal(map[string]any{"config": c})
		hidden(t, text, secret, c.Describe(), fmt.Sprintf("%v %+v %#v %s", c, c, c, c), string(asJSON))
		for _, name := range c.Subscriptions() {
			words, err := c.DescribeSubscription(name)
			if err != nil {
				t.Fatalf("a file that is accepted: %v", err)
			}
			hidden(t, text, secret, words)
		}
		if err := c.Check(t.Context(), drivers()...); err != nil {
			hidden(t, text, secret, err.Error())
		}
	})
}

func hidden(t *testing.T, file, secret string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(text, secret) {
			t.Fatalf("shows the secret: %s\nof the file:\n%s", text, file)
		}
	}
}
