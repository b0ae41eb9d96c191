package nats

import "bytes"

// A frame is a message as it is on the wire:
//
//	MSG <subject> <sid> [reply] <size>\r\n<data>\r\n
//	HMSG <subject> <sid> [reply] <size of headers> <size>\r\n<headers><data>\r\n
type frame struct {
	box      *box // where it belongs
	sid      int  // of the subscription
	subject  span
	reply    span // empty if it has none
	line     int  // bytes of its first line
	headers  int  // bytes
	size     int  // bytes, of headers and data together
	contents []byte
}

// A span is a part of a line.
type span struct{ from, to int }

func (s span) of(line []byte) []byte { return line[s.from:s.to] }

// len is how many bytes it has on the wire.
func (f *frame) len() int { return f.line + f.size + len("\r\n") }

// parse reads the first line of a message, and reports whether it is one.
func (f *frame) parse(line []byte) bool {
	var words [6]span
	n := 0
	rest, ok := bytes.CutSuffix(line, []byte("\r\n"))
	for from := 0; from < len(rest); n++ {
		end := bytes.IndexByte(rest[from:], ' ')
		if end < 0 {
			end = len(rest) - from
		}
		if n == len(words) || end == 0 {
			return false
		}
		words[n] = span{from, from + end}
		from += end + 1
	}
	numbers := 1
	if line[0] == 'H' {
		numbers = 2
	}
	switch n - numbers {
	case 3:
		f.reply = span{}
	case 4:
		f.reply = words[3]
	default:
		return false
	}
	if word := words[0].of(line); string(word) != "MSG" && string(word) != "HMSG" {
		return false
	}
	f.subject, f.line, f.headers = words[1], len(line), 0
	var isSID, isSize bool
	f.sid, isSID = number(words[2].of(line))
	f.size, isSize = number(words[n-1].of(line))
	if numbers == 2 {
		f.headers, ok = number(words[n-2].of(line))
	}
	return ok && isSID && isSize && f.headers <= f.size
}

// number reads what is not negative.
func number(digits []byte) (n int, ok bool) {
	if len(digits) == 0 || len(digits) > 9 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// name is what of its first line its receiver wants: the reply, or the subject
// where there is none.
func (f *frame) name() []byte {
	if f.reply.to > 0 {
		return f.reply.of(f.contents)
	}
	return f.subject.of(f.contents)
}

// text is its headers.
func (f *frame) text() []byte { return f.contents[f.line : f.line+f.headers] }

func (f *frame) data() []byte {
	return f.contents[f.line+f.headers : f.line+f.size : f.line+f.size]
}

// arrival is the message, made of copies of its name, its text and its data.
func (f *frame) arrival(name, text string, data []byte) arrival {
	if f.reply.to > 0 {
		return arrival{reply: name, text: text, data: data}
	}
	return arrival{subject: name, text: text, data: data}
}
