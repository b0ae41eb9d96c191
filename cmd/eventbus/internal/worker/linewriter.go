package worker

import (
	"bytes"
	"io"
	"sync"
)

// A LineWriter lets several writers share an output line by line. It passes on whole lines, one call at a time, and writes
// nothing more after the first error of the output.
type LineWriter struct {
	broken chan struct{} // closed with the first error

	mu  sync.Mutex
	out io.Writer
	err error
}

// NewLineWriter returns a LineWriter to out.
func NewLineWriter(out io.Writer) *LineWriter {
	return &LineWriter{out: out, broken: make(chan struct{})}
}

// Write writes p, one or more whole lines, in one call.
func (w *LineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.write(p)
}

func (w *LineWriter) write(p []byte) (n int, err error) {
	if w.err != nil {
		return 0, w.err
	}
	if n, w.err = w.out.Write(p); w.err != nil {
		close(w.broken)
	}
	return n, w.err
}

// Broken returns a channel that is closed when the output has failed.
func (w *LineWriter) Broken() <-chan struct{} { return w.broken }

// Err returns the first error of the output.
func (w *LineWriter) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// A LineStream collects the pieces of one writer into lines. It is not safe for concurrent use, but several LineStreams may
// share a LineWriter.
type LineStream struct {
	w    *LineWriter
	rest []byte // the beginning of an unfinished line
	long bool   // a part of a line longer than maxKept was written; w stays locked until the line ends
}

// maxKept limits the bytes of an unfinished line that a LineStream keeps. A longer line is passed on in pieces while the
// other streams wait.
const maxKept = 256 << 10

// Stream returns a new LineStream, which must be closed.
func (w *LineWriter) Stream() *LineStream { return &LineStream{w: w} }

// Write writes all lines that end in p, and keeps the beginning of an unfinished line.
func (s *LineStream) Write(p []byte) (int, error) {
	size := len(p)
	if s.long {
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			return s.w.write(p)
		}
		_, err := s.w.write(p[:end])
		s.long = false
		s.w.mu.Unlock()
		if err != nil {
			return 0, err
		}
		p = p[end:]
	}
	if end := bytes.LastIndexByte(p, '\n') + 1; end > 0 {
		s.rest = append(s.rest, p[:end]...)
		_, err := s.w.Write(s.rest)
		s.rest = s.rest[:0]
		if err != nil {
			return 0, err
		}
		p = p[end:]
	}
	s.rest = append(s.rest, p...)
	if len(s.rest) > maxKept {
		s.w.mu.Lock()
		s.long = true
		_, err := s.w.write(s.rest)
		s.rest = nil
		if err != nil {
			return 0, err
		}
	}
	return size, nil
}

// Close writes the unfinished line, if there is one, and ends it with a line feed.
func (s *LineStream) Close() error {
	switch {
	case s.long:
		s.long = false
		defer s.w.mu.Unlock()
		_, err := s.w.write([]byte{'\n'})
		return err
	case len(s.rest) > 0:
		_, err := s.w.Write(append(s.rest, '\n'))
		s.rest = nil
		return err
	}
	return s.w.Err()
}
