package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/seed41896749/eventbus"
)

// An Error is a mistake in a configuration file, with its location. [Parse] joins all errors as
// errors.Join does, in the order of the file. No error shows a secret.
type Error struct {
	File         string
	Line, Column int    // the location in the file, from 1; 0 if the mistake has none
	Path         string // the path of the key, such as bus.subscriptions.billing.lease; may be empty
	Reason       string
	Err          error // the cause; may be nil
}

func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
	}
	if e.Path != "" {
		where += ": " + e.Path
	}
	return where + ": " + e.Reason
}

// Unwrap returns Err, the cause.
func (e *Error) Unwrap() error { return e.Err }

// A location is the position of a value in the file.
type location struct{ line, column int }

// problems collects the errors of one file.
type problems struct {
	file string
	list []*Error
}

func (p *problems) add(at location, path, reason string) {
	p.list = append(p.list, &Error{File: p.file, Line: at.line, Column: at.column, Path: path, Reason: reason})
}

// subscriptionFails reports whether there is an error for a key of the subscription with this name,
// which is one of all. The name of another one may begin with this name and a dot.
func (p *problems) subscriptionFails(name string, all []string) bool {
	return slices.ContainsFunc(p.list, func(e *Error) bool {
		longest := ""
		for _, n := range all {
			if strings.HasPrefix(e.Path+".", subscriptionPath(n)+".") && len(n) > len(longest) {
				longest = n
			}
		}
		return longest == name
	})
}

// anyBelow reports whether there is an error for the key at path, or for a key below it.
func (p *problems) anyBelow(path string) bool {
	return slices.ContainsFunc(p.list, func(e *Error) bool { return strings.HasPrefix(e.Path+".", path+".") })
}

// err joins the errors in the order of the file.
func (p *problems) err() error {
	slices.SortStableFunc(p.list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	errs := make([]error, len(p.list))
	for i, e := range p.list {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// quoteIfHarmless returns text in quotes if it is certainly no secret: short, printable, and not part
// of a URL. Otherwise it returns false.
func quoteIfHarmless(text string) (string, bool) {
	harmful := func(r rune) bool { return r == '@' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	if len(text) > 64 || strings.Contains(text, "://") || strings.IndexFunc(text, harmful) >= 0 {
		return "", false
	}
	return strconv.Quote(text), true
}

// quoteUnlessSecret returns prefix and text in quotes. If text may be secret, it returns the words
// instead and a remark that the text is not shown.
func quoteUnlessSecret(prefix, text, instead string) string {
	if s, ok := quoteIfHarmless(text); ok {
		return prefix + s
	}
	return instead + " that is not shown, as it may be part of a secret"
}

// located returns err, usually an error of package eventbus, as an [Error] with a location. If err is
// a FieldError, that is the location of the key below path that sets the field; otherwise, or if the
// file has no such key, it is the location of the key at path.
func (c *Config) located(path string, err error) *Error {
	e := &Error{File: c.file, Path: path, Reason: err.Error(), Err: err}
	if f, ok := errors.AsType[*eventbus.FieldError](err); ok {
		e.Reason = strings.TrimPrefix(f.Error(), "eventbus: ")
		for _, option := range options {
			if option.field == f.Field || strings.HasPrefix(f.Field, option.field+"[") { // such as Retry.Rules[0].Class
				e.Path, e.Reason = path+"."+option.path, keyNames.Replace(f.Reason)
			}
		}
	}
	at, given := c.locations[e.Path]
	if !given {
		at = c.locations[path]
	}
	e.Line, e.Column = at.line, at.column
	return e
}

// keyNames replaces names of eventbus fields by names of keys, in texts of errors.
var keyNames = strings.NewReplacer("Concurrency", "concurrency", "Lease", "lease", "Initial", "the first", "Batch.MaxSize", "batch.size")

// options lists the fields of package eventbus that keys set. A path begins below the key
// of the bus or of the subscription.
var options = slices.Concat(keysOf(reflect.TypeFor[bus](), ""), keysOf(reflect.TypeFor[subscription](), ""))

// An option is a field of package eventbus and the path of its key.
type option struct{ field, path string }

func keysOf(t reflect.Type, path string) (list []option) {
	for _, f := range fields(t) {
		for _, o := range f.options {
			list = append(list, option{o, join(path, f.key)})
		}
		if _, ok := leafOf(reflect.New(f.typ).Elem()); !ok && f.typ.Kind() == reflect.Struct && f.typ != reflect.TypeFor[defaults]() {
			list = append(list, keysOf(f.typ, join(path, f.key))...)
		}
	}
	return list
}
