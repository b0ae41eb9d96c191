package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// writeDocument replaces part of a file with the output of write. The part is the text
// between these two comments:
//
//	<!-- name -->
//	<!-- end of name -->
func writeDocument(file, name string, write func(io.Writer)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	first, last := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	before, rest, ok := strings.Cut(string(text), first)
	_, after, ok2 := strings.Cut(rest, last)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no %s and %s", file, strings.TrimSpace(first), last)
	}
	var b strings.Builder
	b.WriteString(before + first + "\n")
	write(&b)
	b.WriteString("\n" + last + after)
	return os.WriteFile(file, []byte(b.String()), 0o600)
}
