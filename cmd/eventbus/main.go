// Command eventbus publishes and consumes events on any backend, and shows and changes what is there. It also has a demo
// of the bus.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/service"
)

func main() {
	// A write to a closed pipe should fail, not end the process. signal.Ignore would be
	// wrong, because the commands that sub runs would inherit it.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// A second signal ends the process, or the drain of sub and work, whose service listens for signals itself. It
	// counts only after a second, because timeout(1) sends its signal twice at once.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	code := run(ctx, drivers(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit code. It prints an error as one line on stderr.
func run(ctx context.Context, drivers []backend.Driver, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot(drivers)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		text := "eventbus: " + strings.Join(strings.Fields(withoutURLs(err.Error(), args)), " ")
		fmt.Fprintln(stderr, "eventbus: "+strings.ReplaceAll(text, "eventbus: ", ""))
		return exitCode(err)
	}
	return service.ExitClean
}

// withoutURLs removes URLs from a message, because a URL given in the wrong place may contain a password.
func withoutURLs(text string, args []string) string {
	for _, arg := range args {
		if flag, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(flag, "-") {
			arg = value
		}
		if strings.Contains(arg, "://") {
			text = strings.ReplaceAll(text, arg, "URL")
			text = strings.ReplaceAll(text, strings.Trim(fmt.Sprintf("%q", arg), `"`), "URL")
			text = strings.ReplaceAll(text, inHex(arg), "URL")
		}
	}
	return text
}

// inHex quotes s as time.ParseDuration does, with \xNN for each byte outside ASCII.
func inHex(s string) string {
	var b strings.Builder
	for _, c := range []byte(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)) {
		if c < ' ' || c >= utf8.RuneSelf {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// An exitError is an error with its own exit code; see [service.Outcome.ExitCode].
type exitError struct {
	error
	code int
}

func (e *exitError) Unwrap() error { return e.error }

// exitCode returns the exit code for the result of a command.
func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if err != nil {
		return service.ExitErrors
	}
	return service.ExitClean
}
