package bolt

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/seed41896749/eventbus/backend"
	"github.com/seed41896749/eventbus/internal/brokerurl"
)

// Options are the settings of a [Backend]. A field of zero or less means its default.
type Options struct {
	MaxMessages int           // that a topic has, kept ones included; default 1,048,576
	OnceWindow  time.Duration // how long Message.Once remembers an ID; default 2 minutes

	// MinFree is how many bytes Publish leaves free, on the disk and in the file together, so
	// that events can be settled on a full disk. Publish then fails with ErrFull. Default 64 MiB,
	// or a twentieth of the disk if that is less. It has an effect on Linux and macOS.
	MinFree int64
}

func (o Options) withDefaults() Options {
	if o.MaxMessages <= 0 {
		o.MaxMessages = 1 << 20
	}
	if o.OnceWindow <= 0 {
		o.OnceWindow = 2 * time.Minute
	}
	o.MinFree = max(o.MinFree, 0)
	return o
}

// A Driver opens backends by a URL with the path of a file:
//
//	bolt:///var/lib/shop/events.db
//	bolt:events.db?once_window=1h    in the folder of the process
//
// The parameters are the fields of [Options]: max_messages, once_window (such as "90s") and min_free
// (such as "1GiB").
// See [Open] for a file that is open already.
type Driver struct{}

var (
	_ backend.Driver     = Driver{}
	_ backend.URLChecker = Driver{}
)

// Schemes implements [backend.Driver].
func (Driver) Schemes() []string { return []string{"bolt"} }

// Open implements [backend.Driver]. Its errors name the file.
func (Driver) Open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	path, o, err := parse(u)
	if err != nil {
		return nil, failed("open", err)
	}
	b, err := Open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// CheckURL implements [backend.URLChecker].
func (Driver) CheckURL(u *url.URL) error {
	if _, _, err := parse(u); err != nil {
		return fmt.Errorf("bolt: %w", err)
	}
	return nil
}

// parse reads a URL. Its errors quote no part of the URL except a wrong parameter.
func parse(u *url.URL) (path string, o Options, err error) {
	path = u.Path
	if u.Opaque != "" {
		path, err = url.PathUnescape(u.Opaque)
	}
	switch {
	case err != nil:
		return "", o, errors.New("the path in the URL has a wrong % escape")
	case u.User != nil || u.Host != "":
		return "", o, errors.New("the URL has a host: a path from the root has three slashes, as in bolt:///var/lib/events.db, and another has none, as in bolt:events.db")
	case u.Fragment != "":
		return "", o, errors.New("the URL has something behind #, which in a path is written %23")
	case strings.Trim(path, "/") == "":
		return "", o, errors.New("the URL names no file, as in bolt:events.db")
	case strings.HasSuffix(path, "/"):
		return "", o, errors.New("the path in the URL ends with a slash: name a file in that folder")
	}
	if runtime.GOOS == "windows" && len(path) > 2 && path[0] == '/' && path[2] == ':' {
		path = path[1:] // of bolt:///C:/events.db
	}
	err = brokerurl.Table{
		"max_messages": brokerurl.Count(&o.MaxMessages, 1),
		"min_free":     brokerurl.Size(&o.MinFree),
		"once_window":  brokerurl.Duration(&o.OnceWindow),
	}.Parameters(u)
	return filepath.FromSlash(path), o, err
}
