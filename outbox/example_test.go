package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/inmemory"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/outbox"
)

type Purchase struct{ Order, Customer string }

var purchases = eventbus.Topic[Purchase]{
	Name: "shop.purchases", Type: "purchase.made",
	Key: func(p Purchase) string { return p.Customer },
}

// buy stores a purchase, and publishes it if and only if the transaction commits.
func buy(ctx context.Context, db *sql.DB, ob *outbox.Outbox, p Purchase) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "INSERT INTO purchases VALUES (?, ?)", p.Order, p.Customer); err != nil {
		return err
	}
	if err := purchases.Publish(ctx, ob.In(tx), p); err != nil {
		return err
	}
	return tx.Commit()
}

// bill returns a handler that writes one bill for each purchase, however often the purchase is
// delivered.
func bill(db *sql.DB, ob *outbox.Outbox, billed chan<- string) func(context.Context, Purchase, *eventbus.Delivery) error {
	return func(ctx context.Context, p Purchase, d *eventbus.Delivery) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if first, err := ob.Inbox(tx).First(ctx, d); err != nil || !first {
			return err // nil if the bill is written already
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO bills VALUES (?)", p.Order); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		billed <- p.Order
		return nil
	}
}

// A shop stores purchases and publishes them, in one transaction. Its second purchase breaks a
// rule of the database, so that it is neither stored nor published.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	db, closeShop := openShop(ctx)
	defer closeShop()
	ob, err := outbox.New(db, outbox.SQLite, outbox.Options{Service: "shop", OnActive: func(bool) {}})
	if err != nil {
		panic(err)
	}
	bus, err := eventbus.New(inmemory.New(inmemory.Options{}), eventbus.Options{Observer: observer.Slog(slog.New(slog.DiscardHandler))})
	if err != nil {
		panic(err)
	}
	billed := make(chan string)
	if _, err := purchases.Subscribe(ctx, bus, eventbus.SubscribeOptions{Group: "billing"}, bill(db, ob, billed)); err != nil {
		panic(err)
	}
	relayed := make(chan error)
	go func() { relayed <- ob.Relay(ctx, bus) }()

	for _, p := range []Purchase{{"o-1", "ada"}, {"o-1", "bob"}, {"o-2", "ada"}} {
		if err := buy(ctx, db, ob, p); err != nil {
			fmt.Println(p.Customer, "cannot buy")
		}
	}
	fmt.Println("billed", <-billed, <-billed)

	cancel() // the relay ends before the bus
	fmt.Println(<-relayed)
	fmt.Println(bus.Shutdown(context.Background()))
	// Output:
	// bob cannot buy
	// billed o-1 o-2
	// <nil>
	// <nil>
}

// openShop opens a database with the tables of the shop and of the outbox.
func openShop(ctx context.Context) (db *sql.DB, closeShop func()) {
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		panic(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+
		"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	if err != nil {
		panic(err)
	}
	schema, err := outbox.Schema(outbox.SQLite, "")
	if err != nil {
		panic(err)
	}
	schema += "CREATE TABLE purchases (id TEXT PRIMARY KEY, customer TEXT); CREATE TABLE bills (id TEXT);"
	if _, err := db.ExecContext(ctx, schema); err != nil {
		panic(err)
	}
	return db, func() { db.Close(); os.RemoveAll(dir) }
}

// An operator looks at the waiting events, corrects the cause of the refusals, and lets the
// refused events wait again.
func ExampleOutbox_Refused() {
	ctx, cancel := context.WithCancel(context.Background())
	db, closeShop := openShop(ctx)
	defer closeShop()
	refused := make(chan outbox.Refused)
	ob, err := outbox.New(db, outbox.SQLite, outbox.Options{
		OnActive: func(bool) {}, OnRefused: func(r outbox.Refused) { refused <- r },
	})
	if err != nil {
		panic(err)
	}
	strict := eventbus.PublisherFunc(func(context.Context, string, ...*eventbus.Event) error { // in place of a broker
		return fmt.Errorf("at most 10 bytes: %w", eventbus.ErrTooLarge)
	})
	relayed := make(chan error)
	go func() { relayed <- ob.Relay(ctx, strict) }()
	if err := purchases.Publish(ctx, ob.In(db), Purchase{"o-1", "ada"}); err != nil {
		panic(err)
	}
	<-refused
	cancel()
	if err := <-relayed; err != nil {
		panic(err)
	}

	ctx = context.Background()
	for r, err := range ob.Refused(ctx) {
		if err != nil {
			panic(err)
		}
		fmt.Println(r.Topic, r.Event.Key, "-", r.Reason, time.Since(r.At) < time.Minute)
		fmt.Println(ob.Retry(ctx, r.Number)) // or Discard
	}
	stats, err := ob.Stats(ctx)
	fmt.Println(stats.Waiting, stats.Refused, errors.Join(err))
	// Output:
	// shop.purchases ada - at most 10 bytes: too large true
	// 1 <nil>
	// 1 0 <nil>
}
