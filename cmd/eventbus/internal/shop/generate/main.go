// Command generate writes the events of package shop. Each run writes the same.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"time"
)

const (
	events    = 2000
	customers = 300
	atOnce    = 60 // open orders
	oldTill   = 1.0 / 250
)

var (
	steps = []string{"order.placed", "order.paid", "order.packed", "order.shipped", "order.delivered"}
	goods = []string{"apples", "bread", "cheese", "coffee", "honey", "olives", "rice", "soap", "tea", "wine"}
)

type event struct {
	ID      string            `json:"id"`
	Type    string            `json:"type"`
	Source  string            `json:"source"`
	Subject string            `json:"subject"`
	Key     string            `json:"key"`
	Time    time.Time         `json:"time"`
	Headers map[string]string `json:"headers,omitempty"`
	Data    any               `json:"data"`
}

type order struct {
	Order    string `json:"order"`
	Customer string `json:"customer"`
	Goods    string `json:"goods"`
	Cents    int    `json:"cents"`
	step     int
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: generate FILE")
	}
	if err := write(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func write(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	to := json.NewEncoder(w)
	s := shop{rand: rand.New(rand.NewPCG(2026, 1)), now: time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)}
	for n := range events {
		if err := to.Encode(s.next(n + 1)); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}

// A shop is the state of the generator.
type shop struct {
	rand   *rand.Rand
	now    time.Time
	orders int
	open   []*order
}

// next returns event n, the next step of a random open order. Before that it opens new
// orders until atOnce orders are open.
func (s *shop) next(n int) event {
	s.now = s.now.Add(time.Duration(1+s.rand.IntN(40)) * time.Second)
	for len(s.open) < atOnce {
		s.open = append(s.open, s.order())
	}
	i := s.rand.IntN(len(s.open))
	o := s.open[i]
	e := event{
		ID: fmt.Sprintf("e-%04d", n), Type: steps[o.step], Source: "shop/web", Subject: o.Order, Key: o.Customer,
		Time: s.now, Headers: map[string]string{"region": []string{"north", "south"}[s.rand.IntN(2)]}, Data: o,
	}
	if s.rand.Float64() < oldTill {
		e.Source, e.Data = "shop/old-till", fmt.Sprintf("%s;%s;%d,%02d", o.Order, o.Goods, o.Cents/100, o.Cents%100)
	}
	if o.step++; o.step == len(steps) {
		s.open = append(s.open[:i], s.open[i+1:]...)
	}
	return e
}

func (s *shop) order() *order {
	s.orders++
	return &order{
		Order: fmt.Sprintf("o-%04d", s.orders), Customer: fmt.Sprintf("c-%03d", 1+s.rand.IntN(customers)),
		Goods: goods[s.rand.IntN(len(goods))], Cents: 199 + s.rand.IntN(9800),
	}
}
