package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// An Error is a mistake in a configuration, with its place. [Parse] returns all errors of
// a file joined, errors of the environment last. No error shows a secret.
type Error struct {
	File         string
	Line, Column int    // from 1; 0 without a place in the file
	Variable     string // the environment variable with the mistake, if any
	Path         string // of the key, such as bus.subscriptions.billing.lease; may be empty
	Reason       string
	Err          error // the cause; may be nil
}

func (e *Error) Error() string {
	where := e.File
	switch {
	case e.Variable != "":
		where = e.Variable
	case e.Line > 0:
		where = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column)
	}
	if e.Path != "" {
		where += ": " + e.Path
	}
	return where + ": " + e.Reason
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A place is the position of a value in the file, or its environment variable.
type place struct {
	line, column int
	variable     string
}

// problems are the errors of one file.
type problems struct {
	file string
	list []*Error
}

func (p *problems) add(at place, path, reason string) {
	p.list = append(p.list, &Error{File: p.file, Line: at.line, Column: at.column, Variable: at.variable, Path: path, Reason: reason})
}

// within reports whether there is an error at path or below.
func (p *problems) within(path string) bool {
	return slices.ContainsFunc(p.list, func(e *Error) bool {
		return e.Path == path || strings.HasPrefix(e.Path, path+".")
	})
}

// err joins the errors in the order of the file.
func (p *problems) err() error {
	slices.SortStableFunc(p.list, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Variable, b.Variable), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	errs := make([]error, len(p.list))
	for i, e := range p.list {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// show quotes a given text if it is harmless: short, printable, and not part of a URL.
func show(text string) (string, bool) {
	harmful := func(r rune) bool { return r == '@' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	if len(text) > 64 || strings.Contains(text, "://") || strings.IndexFunc(text, harmful) >= 0 {
		return "", false
	}
	return strconv.Quote(text), true
}

// quoted returns prefix and the quoted text, or instead if the text may be secret.
func quoted(prefix, text, instead string) string {
	if s, ok := show(text); ok {
		return prefix + s
	}
	return instead + " that is not shown, as it may be part of a secret"
}

// String is the text for people.
func (p place) String() string {
	if p.variable != "" {
		return p.variable
	}
	return fmt.Sprintf("line %d", p.line)
}
