// Package bolt is a durable backend in a single file, without a server. It is a good start, enough
// for a program of one process, and useful to test restarts:
//
//	bus, err := eventbus.Open(ctx, "bolt:///var/lib/shop/events.db", eventbus.Options{}, bolt.Driver{})
//
// A call that changes something returns when the file is on disk; concurrent calls share one write.
// Only one process at a time can open the file. docs/bolt.md describes the URL, the size of the file,
// and how to inspect it. If you write a backend, docs/BACKEND.md builds this package step by step.
//
// The file is a bbolt file with these buckets. Numbers are eight bytes, so keys sort by number.
//
//	format/                         its sequence is the version of the file: 1, or 2 with the parts marked so
//	topics/                         its sequence numbers groups, members, resets and deliveries
//	  TOPIC/                        its sequence is the number of messages in the log;
//	                                settings → Keep, MaxMessages, MaxBytes, bytes in the log (2)
//	  TOPIC/log/                    offset → record; its sequence is the last offset
//	  TOPIC/once/                   ID → offset, end of the window
//	  TOPIC/marks/                  offset → ID: the entries of once, oldest first
//	  TOPIC/members/                group, member → instance, incarnation: members with an Instance
//	  TOPIC/groups/GROUP/           state → identity, last reset, cursor; ephemeral, pause (2)
//	  TOPIC/groups/GROUP/entries/   offset → attempt, delivery, due, held
//	  TOPIC/groups/GROUP/schedule/  due, offset → nothing: the entries by due moment
//	used/                           its sequence is the highest offset of all deleted topics
//
// The cursor of a group is the lowest offset that was never delivered. An entry is a
// message that was delivered and is not settled. A topic without settings has no settings key, and
// the state of most groups ends with the cursor. Every call is a single transaction, so that a crash
// leaves it either done or not begun.
package bolt
