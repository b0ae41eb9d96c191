package eventbus

// Order says which events wait for other events, within one member of a group. In a topic with
// partitions (TopicOptions.Partitions) the order holds in the whole group.
type Order uint8

const (
	// OrderByKey handles events of one Key one after another, retries included: while an
	// event waits for its retry, later events of its key wait too. Events without a key
	// wait for no other event.
	OrderByKey Order = iota

	// Unordered makes no event wait for another event.
	Unordered

	// OrderTotal handles one event after another, retries included. Concurrency must be 1.
	// A topic with partitions must have one.
	OrderTotal
)

// String returns the word for o in a configuration file, such as "by-key".
func (o Order) String() string { return word(o, "by-key", "none", "total") }

// OnFailure says how later events of a key are handled after an event of the key has
// failed for good and become a dead letter.
type OnFailure uint8

const (
	// Skip handles later events of the key as before. They do not wait until the dead
	// letter of the failed event is stored.
	Skip OnFailure = iota

	// FailAll sends the later events of the key that reach this member to the dead-letter
	// topic too, in order and without a run, until the program calls
	// [Subscription.ReleaseKey]. Each event is counted and reported as dead-lettered, with the
	// reason "key-failed". The member has the failed keys in memory: a restart forgets them. In a
	// topic with partitions they are stored, except with EachInstance, and the next owner of the
	// partition knows them: the first 1,000 of each partition.
	FailAll
)

// String returns the word for f in a configuration file, such as "fail-all".
func (f OnFailure) String() string { return word(f, "skip", "fail-all") }
