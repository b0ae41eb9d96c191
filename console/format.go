package console

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/internal/groupstats"
)

// templateFuncs are the functions of the templates.
var templateFuncs = template.FuncMap{
	"age":    age,
	"when":   formatTime,
	"count":  formatCount,
	"bytes":  formatSize,
	"plain":  printable,
	"short":  shorten,
	"long":   func(s string) string { return printable(cutText(s)) },
	"value":  fieldValue,
	"class":  cssClass,
	"spark":  newSparkline,
	"plural": plural,
	"number": formatNumber,
	"beyond": func(n, most int) int { return max(n-most, 0) },
	"dead":   formatDeadLetters,
	"reason": explainReason,

	"jobURL":          jobURL,
	"title":           func(a Action) string { return title(&a) },
	"chosen":          func(a Action) string { return a.Filter.text() },
	"topicURL":        topicURL,
	"groupURL":        groupURL,
	"groupsURL":       func(name string) string { return overviewURL(name, "", 0) },
	"lettersURL":      lettersURL,
	"groupLettersURL": groupLettersURL,
	"classURL":        classURL,
	"scheduleURL":     scheduleURL,
	"lifecycleURL":    lifecycleURL,
}

// age returns the time from t to now as text, in its two greatest units.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	d := max(now.Sub(t), 0) // the clock of the broker may be ahead
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd %dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm %ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// formatTime returns a time for people, in UTC, because operators compare it with logs.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// formatCount returns a number with its digits in groups of three, or "unknown".
func formatCount(c groupstats.Count) string {
	if !c.Known() {
		return "unknown"
	}
	return groupDigits(c.String())
}

const thousands = '\u202f' // a narrow space

// groupDigits returns a number with its digits in groups of three.
func groupDigits(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + string(thousands) + digits[i:]
	}
	return digits
}

// formatNumber returns n with its digits in groups of three.
func formatNumber(n int) string { return groupDigits(strconv.Itoa(n)) }

// formatDeadLetters returns a number of dead letters, such as "12 or more" or "unknown".
func formatDeadLetters(l *groupstats.Letters) string {
	n := formatNumber(l.N)
	return strings.Replace(l.String(), strconv.Itoa(l.N), n, 1)
}

// explainReason explains the reason for a dead letter. It returns "" for another program's reasons.
func explainReason(word string) string {
	return map[string]string{
		eventbus.ReasonPermanent:  "its handler said that another attempt would not help",
		eventbus.ReasonExhausted:  "every attempt failed",
		eventbus.ReasonKeyFailed:  "an earlier event of its key failed, and the group keeps failed events in order",
		eventbus.ReasonUnreadable: "the stored event cannot be decoded",
		eventbus.ReasonNoVerdict:  "it was delivered very often, but no run ended: its handler may crash the process",
		eventbus.ReasonExpired:    "it was too old when it was delivered",
		eventbus.ReasonTooLarge:   "it is larger than the group accepts",
		eventbus.ReasonOnReceive:  "its run failed after it had been acknowledged",
		eventbus.ReasonOperator:   "an operator removed it from the group",
	}[word]
}

// formatSize returns a number of bytes for people.
func formatSize(n int) string {
	switch {
	case n < 10_000:
		return strconv.Itoa(n) + " B"
	case n < 10<<20:
		return strconv.Itoa(n>>10) + " KiB"
	}
	return strconv.Itoa(n>>20) + " MiB"
}

// plural returns a number and its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return formatNumber(n) + " " + noun + "s"
}

// printable returns s with an escape in place of each character that is not seen, such as one that
// reverses the direction of the text. It keeps line ends.
func printable(s string) string {
	if strings.IndexFunc(s, isHidden) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case !isHidden(r):
			b.WriteRune(r)
		case r == unicode.ReplacementChar && !strings.HasPrefix(s[i:], string(unicode.ReplacementChar)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

func isHidden(r rune) bool {
	return r != '\n' && r != '\t' && r != thousands && !unicode.IsPrint(r) || r == unicode.ReplacementChar
}

// fieldValue returns s for a field of a form, without characters that HTML cannot have.
func fieldValue(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r&0xfffe == 0xfffe {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// maxShortText is the most bytes of a text in a table.
const maxShortText = 120

// shorten returns the beginning of a text in one line, for a table.
func shorten(s string) string {
	cut := len(s) > maxShortText
	if cut {
		s = strings.ToValidUTF8(s[:maxShortText], "")
	}
	s = printable(strings.Join(strings.Fields(s), " "))
	if cut {
		s += "…"
	}
	return s
}

// cssClass returns the class of a status, such as "no-members".
func cssClass(s groupstats.Status) string { return strings.ReplaceAll(s.String(), " ", "-") }

// A sparkline draws the lag of the last minutes, in an SVG of sparkWidth × sparkHeight.
type sparkline struct {
	Lines []string // the points of each polyline, which ends where nothing is known
	Label string   // the same in words
}

const (
	sparkWidth  = 90
	sparkHeight = 20
)

// newSparkline returns the line of lags, the newest last. A negative lag is not known.
func newSparkline(lags []int64) sparkline {
	most, last, known := int64(0), int64(-1), 0
	for _, lag := range lags {
		most = max(most, lag)
		if lag >= 0 {
			last = lag
			known++
		}
	}
	if known == 0 {
		return sparkline{Label: "the lag is unknown"}
	}
	s := sparkline{Label: fmt.Sprintf("lag in the last 15 minutes: now %d, at most %d", last, most)}
	var points []string
	end := func() {
		if len(points) == 1 { // a point alone is a short line
			points = append(points, points[0])
		}
		if len(points) > 0 {
			s.Lines = append(s.Lines, strings.Join(points, " "))
		}
		points = nil
	}
	for i, lag := range lags {
		if lag < 0 {
			end()
			continue
		}
		x := sparkWidth - len(lags) + i + 1
		y := sparkHeight - 1 - float64(lag)/float64(max(most, 1))*(sparkHeight-2)
		points = append(points, fmt.Sprintf("%d,%.1f", x, y))
	}
	end()
	return s
}
