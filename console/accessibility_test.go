package console_test

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/console"
)

// A page can be used by keyboard and by a screen reader: it has landmarks, one heading of the first
// level, names of fields, tables and links, and unique ids.
func TestPagesAreAccessible(t *testing.T) {
	inBubble(t, func(t *testing.T, m *countingBackend) {
		shop(t, m)
		v := change(t, m, console.Options{})
		list := v.page("topic?name=orders")
		letters := v.page("topic?name=orders.dlq")
		letter := letters.all("a")[linkIndex(letters, "event?")].attrs["href"]
		v.submit(v.open(letter), "redrive")
		letters = v.open("topic?name=orders.dlq")
		left := letters.all("a")[linkIndex(letters, "event?")].attrs["href"]
		for _, at := range []string{
			"jobs", v.open("jobs").link("Redrive one dead letter of orders.dlq"), left, strings.Replace(left, "event?", "edit?", 1),
			"confirm?verb=discard&topic=orders.dlq&kind=1&of=orders&group=billing&reason=exhausted", "confirm?verb=reset&topic=orders&name=billing&to=latest", "group?topic=orders&name=billing",
			"", "group?topic=parts&name=g", "topic?name=orders", "topic?name=orders&id=e-1", "letters?topic=orders.dlq", "schedule?topic=orders", "lifecycle?topic=orders", "processes", list.all("a")[linkIndex(list, "event?")].attrs["href"],
		} {
			p := v.page(at)
			for _, name := range []string{"main", "header", "h1", "title"} {
				require.Len(t, p.all(name), 1, "%s: %s", at, name)
			}
			require.Equal(t, "en", p.all("html")[0].attrs["lang"])
			require.Len(t, p.all("caption"), len(p.all("table")), at)
			ids := map[string]bool{}
			fields := 0
			for _, e := range p.elements {
				if id := e.attrs["id"]; id != "" {
					require.False(t, ids[id], "%s: id %s", at, id)
					ids[id] = true
				}
				switch {
				case e.name == "input" && e.attrs["type"] == "hidden": // nobody sees it
				case e.name == "input", e.name == "textarea":
					fields++
				case e.name == "a", e.name == "label", e.name == "th", e.name == "caption", e.name == "button", e.name == "dt":
					require.NotEmpty(t, strings.TrimSpace(e.text), "%s: %s", at, e.name)
				case e.name == "svg", e.name == "nav", e.name == "form":
					require.NotEmpty(t, e.attrs["aria-label"], "%s: %s", at, e.name)
				}
			}
			require.Len(t, p.all("label"), fields, at)
			for _, e := range p.elements {
				if of := e.attrs["aria-labelledby"]; of != "" {
					require.True(t, ids[of], "%s: %s", at, of)
				}
			}
			require.True(t, ids["main"], "the link that skips the head has a target")
		}
	})
}

var colour = regexp.MustCompile(`--(\w+): (#[0-9a-f]{6});`)

// Each text has a contrast of at least 4.5 to each background, in the light and in the dark.
func TestContrast(t *testing.T) {
	css, err := os.ReadFile("assets/console.css")
	require.NoError(t, err)
	light, dark, ok := strings.Cut(string(css), "@media (prefers-color-scheme: dark)")
	require.True(t, ok)
	for name, part := range map[string]string{"light": light, "dark": dark} {
		colours := map[string]string{}
		for _, m := range colour.FindAllStringSubmatch(part, -1) {
			colours[m[1]] = m[2]
		}
		for _, text := range []string{"text", "faint", "link", "good", "warn", "bad", "calm"} {
			for _, back := range []string{"back", "raised"} {
				require.GreaterOrEqual(t, contrast(colours[text], colours[back]), 4.5, "%s: %s on %s", name, text, back)
			}
		}
	}
}

// contrast returns the contrast ratio of two colours, as WCAG 2 defines it.
func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(hex string) float64 {
	var sum float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, _ := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8) // the expression has matched it
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
