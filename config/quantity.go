package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/internal/bytesize"
)

// nounOrNone appends "or" and f.none to noun, if f has such a word for "no bound".
func nounOrNone(noun string, f *field) string {
	if f.noneText != "" {
		return noun + " or " + f.noneText
	}
	return noun
}

// schemaOrNone lets s also accept f.none, if f has such a word for "no bound".
func schemaOrNone(s schema, f *field) schema {
	if f.noneText == "" {
		return s
	}
	return schema{"anyOf": []schema{s, {"const": f.noneText}}}
}

// A number is a whole number; -1 means no bound.
type number int

const maxNumber = math.MaxInt32

var digits = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

func (n *number) parse(s string, f *field) error {
	if f.noneText != "" && s == f.noneText {
		*n = -1
		return nil
	}
	if !digits.MatchString(s) {
		return errors.New(nounOrNone("not a whole number", f) + exampleOf(f))
	}
	v, err := strconv.Atoi(s)
	if err != nil || v > maxNumber {
		return fmt.Errorf("more than %d", maxNumber)
	}
	if least, _ := strconv.Atoi(f.min); v < least {
		return belowMinimum(f)
	}
	*n = number(v)
	return nil
}

// belowMinimum returns the error for a value of f below its minimum, f.least. If f has a word
// for "no bound", the error also names this word.
func belowMinimum(f *field) error {
	reason := "less than " + f.min
	if f.noneText != "" {
		reason += "; for none write " + f.noneText
	}
	return errors.New(reason)
}

func exampleOf(f *field) string {
	if f.defaultText == "" {
		return ""
	}
	return ", such as " + f.defaultText
}

func (*number) noun(f *field) string { return nounOrNone("whole number", f) }

func (*number) schema(f *field) schema {
	least, _ := strconv.Atoi(f.min)
	return schemaOrNone(schema{"type": "integer", "minimum": least, "maximum": maxNumber}, f)
}

func (*number) style() style { return plainStyle }

// A share is a number from 0 to 1. A 0 in the file becomes -1, because the zero value means
// the default.
type share float64

var decimal = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

func (h *share) parse(s string, f *field) error {
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || !decimal.MatchString(s):
		return errors.New("not a number from 0 to 1" + exampleOf(f))
	case v > 1:
		return errors.New("more than 1")
	case v == 0:
		v = -1
	}
	*h = share(v)
	return nil
}

func (*share) noun(*field) string { return "number from 0 to 1" }

func (*share) schema(*field) schema { return schema{"type": "number", "minimum": 0, "maximum": 1} }

func (*share) style() style { return plainStyle }

// A duration is written with a unit. A negative duration means no bound.
type duration time.Duration

func (d *duration) value() time.Duration { return time.Duration(*d) }

func (d *duration) parse(s string, f *field) error {
	if f.noneText != "" && s == f.noneText {
		*d = -1
		return nil
	}
	v, err := parseDuration(s, f)
	if err != nil {
		return err
	}
	*d = duration(v)
	return nil
}

const durationPattern = `([0-9]+(\.[0-9]+)?(h|m|s|ms|us|µs|ns))+`

var (
	durationForm = regexp.MustCompile(`^` + durationPattern + `$`)
	bareNumber   = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?$`)
	withUnit     = regexp.MustCompile(`^[0-9.]+ ?([A-Za-z]{1,12})$`)
)

// parseDuration returns the duration that s stands for. It refuses one below f.least.
func parseDuration(s string, f *field) (time.Duration, error) {
	if !durationForm.MatchString(s) {
		return 0, notDuration(s, f)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("more than 292 years")
	}
	if least, _ := time.ParseDuration(f.min); v < least {
		return 0, belowMinimum(f)
	}
	return v, nil
}

// notDuration returns an error that says why s is not a duration.
func notDuration(s string, f *field) error {
	number, bad := strconv.ParseFloat(s, 64)
	unit := withUnit.FindStringSubmatch(s)
	switch {
	case bad == nil && number <= 0, strings.HasPrefix(s, "-") && durationForm.MatchString(s[1:]):
		return belowMinimum(f)
	case bareNumber.MatchString(s):
		return errors.New("missing unit, such as " + s + "s")
	case unit != nil:
		return fmt.Errorf("unknown unit %q; there are h, m, s, ms, us and ns, as in 1m30s", unit[1])
	}
	return errors.New(nounOrNone("not a duration", f) + ", such as 30s, 1m30s or 250ms")
}

func (*duration) noun(f *field) string { return nounOrNone("duration", f) }

func (*duration) schema(f *field) schema {
	return schemaOrNone(schema{"type": "string", "pattern": "^" + durationPattern + "$"}, f)
}

func (*duration) style() style { return anyStyle }

// A durationRange is the first and the longest delay of retries.
type durationRange struct{ Initial, Max time.Duration }

func (p *durationRange) parse(s string, f *field) error {
	first, last, ok := strings.Cut(s, "..")
	if !ok {
		return errors.New("not two durations, the first delay and the longest, such as 200ms..1m")
	}
	initial, err := parseDuration(first, f)
	if err != nil {
		return fmt.Errorf("the first delay: %w", err)
	}
	longest, err := parseDuration(last, f)
	if err != nil {
		return fmt.Errorf("the longest delay: %w", err)
	}
	if longest < initial {
		return errors.New("the longest delay is less than the first")
	}
	*p = durationRange{initial, longest}
	return nil
}

func (*durationRange) noun(*field) string { return "two durations" }

func (*durationRange) schema(*field) schema {
	return schema{"type": "string", "pattern": `^` + durationPattern + `\.\.` + durationPattern + `$`}
}

func (*durationRange) style() style { return anyStyle }

// A numberRange is a number of handlers, or the least and the greatest number, such as 1..8.
// Most is zero without a greatest number.
type numberRange struct{ Min, Max number }

func (r *numberRange) parse(s string, f *field) error {
	first, last, ranged := strings.Cut(s, "..")
	if err := r.Min.parse(first, f); err != nil {
		return err
	}
	if !ranged {
		return nil
	}
	if err := r.Max.parse(last, f); err != nil {
		return fmt.Errorf("the greatest number: %w", err)
	}
	if r.Max < r.Min {
		return fmt.Errorf("the greatest number, %d, is less than the least, %d", r.Max, r.Min)
	}
	return nil
}

func (*numberRange) noun(*field) string { return "whole number, or two such as 1..8" }

func (*numberRange) schema(*field) schema {
	return schema{"anyOf": []schema{{"type": "integer", "minimum": 1}, {"type": "string", "pattern": `^[1-9][0-9]*\.\.[1-9][0-9]*$`}}}
}

func (*numberRange) style() style { return anyStyle }

// A size is a number of bytes, written with a unit; -1 means no bound.
type size int64

func (b *size) parse(s string, f *field) error {
	if f.noneText != "" && s == f.noneText {
		*b = -1
		return nil
	}
	if bareNumber.MatchString(s) {
		if strings.HasPrefix(s, "-") {
			return belowMinimum(f)
		}
		return errors.New("missing unit, such as " + exampleSize(f) + "; bytes are " + s + "B")
	}
	v, err := bytesize.Parse(s)
	switch {
	case errors.Is(err, bytesize.ErrForm):
		return errors.New(nounOrNone("not a size", f) + ", a whole number and a unit, such as " + exampleSize(f))
	case err != nil:
		return err
	case v == 0:
		return belowMinimum(f)
	}
	*b = size(v)
	return nil
}

func exampleSize(f *field) string {
	if f.defaultText != "" {
		return f.defaultText
	}
	return "64MiB"
}

func (*size) noun(f *field) string { return nounOrNone("size", f) }

func (*size) schema(f *field) schema {
	return schemaOrNone(schema{"type": "string", "pattern": "^" + bytesize.Pattern + "$"}, f)
}

func (*size) style() style { return anyStyle }

// A rateValue is a number of events per second.
type rateValue float64

var rateForm = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?/[smh]$`)

func (q *rateValue) parse(s string, _ *field) error {
	number, unit, _ := strings.Cut(s, "/")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !rateForm.MatchString(s) {
		return errors.New("not a number of events in a time, such as 100/s, 30/m or 5/h")
	}
	v /= map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit].Seconds()
	if v <= 0 || v > maxNumber {
		return fmt.Errorf("not above 0 and at most %d/s", maxNumber)
	}
	*q = rateValue(v)
	return nil
}

func (*rateValue) noun(*field) string { return "number of events in a time" }

func (*rateValue) schema(*field) schema {
	return schema{"type": "string", "pattern": rateForm.String()}
}

func (*rateValue) style() style { return anyStyle }

// A percent is a share above 0 and at most 1. The file has it as a percentage, such as 50%.
type percent float64

var percentForm = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?%$`)

func (p *percent) parse(s string, _ *field) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	switch {
	case err != nil || !percentForm.MatchString(s):
		return errors.New("not a percentage, such as 50%")
	case v <= 0 || v > 100:
		return errors.New("not above 0% and at most 100%")
	}
	*p = percent(v / 100)
	return nil
}

func (*percent) noun(*field) string { return "percentage" }

func (*percent) schema(*field) schema {
	return schema{"type": "string", "pattern": percentForm.String()}
}

func (*percent) style() style { return anyStyle }
