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

// An Error says what is wrong in a configuration, and where. [Parse] returns all
// errors of a file joined, those of the environment last. None shows a secret.
type Error struct {
	File         string
	Line, Column int    // from 1; 0 where nothing of the file is meant
	Variable     string // of the environment, if what is wrong comes from it
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

// A place is where something is given: in the file, or in the environment.
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

// within reports whether anything is wrong at path or below.
func (p *problems) within(path string) bool {
	return slices.ContainsFunc(p.list, func(e *Error) bool {
		return e.Path == path || strings.HasPrefix(e.Path, path+".")
	})
}

// err joins them in the order of the file.
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

// show quotes what was given, if it is harmless: no URL, nothing that could be
// a piece of one, and short.
func show(text string) (string, bool) {
	harmful := func(r rune) bool { return r == '@' || r == unicode.ReplacementChar || !unicode.IsPrint(r) }
	if len(text) > 64 || strings.Contains(text, "://") || strings.IndexFunc(text, harmful) >= 0 {
		return "", false
	}
	return strconv.Quote(text), true
}

// quoted is prefix and text in quotes, or instead if text must not be shown.
func quoted(prefix, text, instead string) string {
	if s, ok := show(text); ok {
		return prefix + s
	}
	return instead + " that is not shown, as it may be part of a secret"
}

// String is the place for people.
func (p place) String() string {
	if p.variable != "" {
		return p.variable
	}
	return fmt.Sprintf("line %d", p.line)
}
