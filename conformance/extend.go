package conformance

import "time"

var extendLaws = []law{
	{
		id: "L01", name: "extend", promise: "an extended delivery goes to nobody else",
		needs:     []need{needExtender},
		saboteurs: []string{"ignores-extends"}, driver: extend,
	}, {
		id: "C27", name: "extend-restarts", promise: "an extended delivery is due one lease after it was extended: not before, and soon after",
		needs:     []need{needExtender},
		saboteurs: []string{"ignores-extends", "extends-for-long"}, driver: extendRestarts,
	}, {
		id: "C28", name: "extend-counts-not", promise: "extending does not count as an attempt",
		needs:     []need{needExtender},
		saboteurs: []string{"counts-extends"}, driver: extendCountsNot,
	},
}

func extend(e *driverEnv) {
	one, two := e.attach("g"), e.attach("g")
	e.publishN(3)
	ds := e.receive(one, 3)
	for range 4 {
		e.nothing(two, e.lease/2, "all are extended")
		e.verb(e.extend(one, ds...))
	}
	e.ack(one, ds...)
	e.nothing(two, 2*e.lease, "all are acknowledged")
}

func extendRestarts(e *driverEnv) {
	one, two := e.attach("g"), e.attach("g")
	e.publishN(1)
	d := e.one(one)
	time.Sleep(e.lease / 2)
	start := time.Now()
	e.verb(e.extend(one, d))
	e.one(two)
	e.notBefore(start, e.lease, "it came back")
	e.by(start, e.lease, "it came back")
}

func extendCountsNot(e *driverEnv) {
	src := e.attach("g")
	e.publishN(1)
	d := e.one(src)
	for range 3 {
		e.verb(e.extend(src, d))
	}
	e.attempt(e.one(src), 2)
}
