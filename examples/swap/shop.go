package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed41896749/eventbus"
)

// An Order is the payload of events.
type Order struct {
	Number   int    `json:"number"`
	Customer string `json:"customer"`
}

var order = eventbus.Topic[Order]{
	Name: "shop.orders", Type: "order.placed",
	Key: func(o Order) string { return o.Customer }, // orders of one customer stay in order
}

// A shop places orders and records their outcomes.
type shop struct {
	orders int
	done   chan struct{} // closed when every order is billed or lost

	mu      sync.Mutex
	billed  map[int]bool
	lost    map[int]bool
	retries int
}

func newShop(orders int) *shop {
	return &shop{orders: orders, done: make(chan struct{}), billed: map[int]bool{}, lost: map[int]bool{}}
}

// open places the orders and waits until each of them is billed or lost.
func (s *shop) open(ctx context.Context, p eventbus.Publisher) error {
	placed := make([]Order, s.orders)
	for i := range placed {
		placed[i] = Order{Number: i, Customer: fmt.Sprintf("c-%d", i%7)}
	}
	if err := order.Publish(ctx, p, placed...); err != nil {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("swap: gave up: %s: %w", s.account(), context.Cause(ctx))
	}
}

// bill fails once for every fifth order, and always for every 25th.
func (s *shop) bill(_ context.Context, o Order, d *eventbus.Delivery) error {
	switch {
	case o.Number%25 == 24:
		s.retry(d)
		return errors.New("the card is refused")
	case o.Number%5 == 0 && d.Attempt == 1:
		return errors.New("the bank is busy")
	}
	s.retry(d)
	s.settle(s.billed, o)
	return nil
}

// lose handles the dead letters of bill.
func (s *shop) lose(_ context.Context, o Order, _ *eventbus.Delivery) error {
	s.settle(s.lost, o)
	return nil
}

// retry counts runs after the first.
func (s *shop) retry(d *eventbus.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Attempt > 1 {
		s.retries++
	}
}

// settle records the outcome of an order. An order may arrive twice.
func (s *shop) settle(as map[int]bool, o Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := len(s.billed) + len(s.lost)
	as[o.Number] = true
	if now := len(s.billed) + len(s.lost); now == s.orders && now > known {
		close(s.done)
	}
}

// account sums up the outcomes of the orders.
func (s *shop) account() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d orders: %d billed, %d dead letters, %d retries", s.orders, len(s.billed), len(s.lost), s.retries)
}
