// Package middleware has common wrappers for handlers and for publishing. Each uses only
// the public API, so a program could write it too.
package middleware
