package main

import (
	"runtime/metrics"
	"syscall"
	"time"
)

// A reading holds the resources that were used until one moment.
type reading struct {
	at      time.Time
	cpu     time.Duration // CPU time of this process, in user and system mode
	broker  time.Duration // CPU time of the broker's process, in user and system mode
	objects uint64        // number of objects allocated
	bytes   uint64
}

// A meter reads the resources that this process and the broker's process have used.
type meter struct {
	broker  int
	profile *profile
}

// begin returns a reading when the measured part of a trial begins. It also starts the
// profile.
func (r meter) begin() reading {
	r.profile.begin()
	return r.read()
}

// end returns a reading when the measured part of a trial ends. It also ends the profile.
func (r meter) end() reading {
	x := r.read()
	r.profile.end()
	return x
}

// read returns a reading. It does not stop the world, unlike runtime.ReadMemStats.
func (r meter) read() reading {
	m := []metrics.Sample{
		{Name: "/gc/heap/allocs:objects"}, {Name: "/gc/heap/tiny/allocs:objects"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(m)
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails only for an invalid argument
	return reading{
		at:      time.Now(),
		cpu:     time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		broker:  cpuOf(r.broker),
		objects: m[0].Value.Uint64() + m[1].Value.Uint64(),
		bytes:   m[2].Value.Uint64(),
	}
}

// A cost holds the resources that were used between two readings.
type cost struct {
	Events     int     `json:"events"`
	PerSecond  float64 `json:"per_second"`
	Allocs     float64 `json:"allocs"`             // per event
	Bytes      float64 `json:"bytes"`              // allocated, per event
	CPUSeconds float64 `json:"cpu_seconds"`        // per million events
	Broker     float64 `json:"broker_cpu_seconds"` // of the broker, per million events

	P50 float64 `json:"p50_ms,omitempty"` // of latency, in milliseconds
	P99 float64 `json:"p99_ms,omitempty"`

	footprint
}

// A footprint holds the resources that were in use at one moment. Only cells of topics and of
// memory measure them.
type footprint struct {
	Connections int   `json:"connections,omitempty"`
	Goroutines  int   `json:"goroutines,omitempty"`
	PeakBytes   int64 `json:"peak_bytes,omitempty"` // of the heap, beyond its size before
	LiveBytes   int64 `json:"live_bytes,omitempty"` // after a collection
}

func (r reading) until(end reading, events int) cost {
	n := float64(events)
	return cost{
		Events:     events,
		PerSecond:  n / end.at.Sub(r.at).Seconds(),
		Allocs:     float64(end.objects-r.objects) / n,
		Bytes:      float64(end.bytes-r.bytes) / n,
		CPUSeconds: (end.cpu - r.cpu).Seconds() / n * 1e6,
		Broker:     (end.broker - r.broker).Seconds() / n * 1e6,
	}
}
