// Command promises writes the table of promises into README.md. It takes the outcomes of
// laws from docs/CONFORMANCE.md, and other facts from the drivers.
//
//	go run ./internal/tools/promises
package main

import (
	"fmt"
	"os"
)

const (
	conformanceFile = "docs/CONFORMANCE.md"
	readmeFile      = "README.md"
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
	readme, err := os.ReadFile(readmeFile)
	if err != nil {
		return err
	}
	next, err := update(string(readme), string(report))
	if err != nil {
		return err
	}
	return os.WriteFile(readmeFile, []byte(next), 0o644)
}
