// Command promises writes what each backend promises into README.md: as its laws
// have come out, by docs/CONFORMANCE.md, and as the driver declares.
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
