package nats

import (
	"sync"
	"time"
)

// A consumer redelivers due messages by a timer, and each NAK with a delay sets this timer to
// 10 ms. So it redelivers only after 10 ms without such a NAK. With one Delay call in 200 ms
// of up to 20 processes, there is such a pause in each 200 ms.
//
// So a group in one process has one Delay call in each delayPause. But calls that have not
// been used can be made later, up to delayCredit at once, with a delayGap between them. An
// event that fails a few times is then redelivered after its own short delays.
const (
	delayPause  = 200 * time.Millisecond
	delayCredit = 4
	delayGap    = 15 * time.Millisecond
)

// A pace says when the next Delay call of a group in this process may be sent.
type pace struct {
	last time.Time // of the last call
	used time.Time // until then, calls with a delayPause between them are used up
}

// next returns the time of a call that is ready now, and the pace after it.
func (p pace) next(now time.Time) (turn time.Time, after pace) {
	turn = now
	for _, earliest := range []time.Time{p.last.Add(delayGap), p.used.Add(-delayCredit * delayPause)} {
		if turn.Before(earliest) {
			turn = earliest
		}
	}
	after = pace{last: turn, used: p.used}
	if after.used.Before(turn) {
		after.used = turn
	}
	after.used = after.used.Add(delayPause)
	return turn, after
}

// A pacer has the paces of the groups of a backend.
type pacer struct {
	mu    sync.Mutex
	paces map[string]pace // by topic and group
}

// forget removes the pace of a group.
func (p *pacer) forget(topic, group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.paces, topic+"/"+group)
}

// turn returns how long the next Delay call for a group must wait.
func (p *pacer) turn(topic, group string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, key := time.Now(), topic+"/"+group
	turn, after := p.paces[key].next(now)
	if p.paces == nil {
		p.paces = map[string]pace{}
	}
	p.paces[key] = after
	return turn.Sub(now)
}
