// Command outbox prints the statements that create the tables of an outbox:
//
//	outbox schema postgres
//	outbox schema -table shop.outbox mysql
//
// The output suits psql, mysql and sqlite3, and the files of a migration tool. Each
// statement has IF NOT EXISTS.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/seed41896749/eventbus/outbox"
)

const usage = `usage: outbox schema [-table NAME] postgres|mysql|sqlite

It prints the statements that create the tables of an outbox.

`

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "outbox:", err)
			os.Exit(1)
		}
	}
}

func run(args []string, out, errs io.Writer) error {
	flags := flag.NewFlagSet("outbox", flag.ContinueOnError)
	flags.SetOutput(errs)
	table := flags.String("table", outbox.DefaultTable, "the `name` of the table of waiting events; the names of others begin with it")
	flags.Usage = func() {
		fmt.Fprint(errs, usage)
		flags.PrintDefaults()
	}
	if len(args) == 0 || args[0] != "schema" {
		flags.Usage()
		if len(args) > 0 && (args[0] == "-h" || args[0] == "--help" || args[0] == "help") {
			return flag.ErrHelp
		}
		return errors.New("the command is schema")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("schema needs one dialect: postgres, mysql or sqlite")
	}
	schema, err := outbox.Schema(outbox.Dialect(flags.Arg(0)), *table)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, schema)
	return err
}
