// Package middleware has wrappers that many programs want around their handlers
// and their publishing. They know nothing that a program of one's own could not:
// each is an example of an eventbus.Middleware.
package middleware
