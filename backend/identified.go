package backend

// An Identified is a [Backend] that says which broker it uses. Spans and metrics show it, so
// that two brokers of one program can be told apart.
type Identified interface {
	// Identity does not change while the backend is open. It has no user and no password.
	Identity() Identity
}

// An Identity names a broker, as the program has named it. Fields that are not known are
// zero.
type Identity struct {
	System  string // the kind of broker in lower case, such as "redis"
	Address string // the host, or the path of a Unix socket; of several hosts the first
	Port    int    // the port of Address
	Client  string // the name of this client that the broker shows to operators
}

// IdentityOf returns the identity that b states, or else the backend that b wraps. It is
// zero if neither is an [Identified].
func IdentityOf(b Backend) Identity {
	if i, ok := As[Identified](b); ok {
		return i.Identity()
	}
	return Identity{}
}
