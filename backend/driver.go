package backend

import (
	"context"
	"net/url"
)

// A Driver opens backends by URL. A program passes the drivers that it uses to
// eventbus.Open.
type Driver interface {
	// Schemes are the URL schemes that the driver serves, the preferred one first.
	Schemes() []string

	// Open opens the backend that u names. It refuses parameters that it does not know.
	// Its errors contain neither u nor the password of u.
	Open(ctx context.Context, u *url.URL) (Backend, error)
}

// A TopicConfigurer is a [Driver] whose topics can have settings of their own,
// such as the number of replicas.
type TopicConfigurer interface {
	// ConfigureTopic returns a copy of the driver. The backends that the copy opens use
	// settings for topic. ConfigureTopic does not connect to a broker. Its error names a
	// setting that is unknown or has a wrong value. It never shows values, because they may
	// be secrets. The driver documents whether settings apply to a topic that exists.
	ConfigureTopic(topic string, settings map[string]string) (Driver, error)
}

// A URLChecker is a [Driver] that can check a URL without a connection to a broker. It is
// for programs that check a configuration before they use it.
type URLChecker interface {
	// CheckURL returns the error that Open would return for u before it connects. It
	// checks the parameters, the settings given to ConfigureTopic, and the files that u
	// names. It does not connect to a broker.
	CheckURL(u *url.URL) error
}
