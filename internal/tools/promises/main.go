// Command promises writes the table of promises into docs/promises.md. It takes the outcomes of
// conformance tests from docs/CONFORMANCE.md, and other facts from the drivers.
//
//	go run ./internal/tools/promises
package main

import (
	"fmt"
	"os"
)

const (
	conformanceFile = "docs/CONFORMANCE.md"
	pageFile        = "docs/promises.md"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "promises:", err)
		os.Exit(1)
	}
}

func run() error {
	report, err := os.ReadFile(conformanceFile)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(pageFile)
	if err != nil {
		return err
	}
	next, err := update(string(page), string(report))
	if err != nil {
		return err
	}
	return os.WriteFile(pageFile, []byte(next), 0o644)
}
