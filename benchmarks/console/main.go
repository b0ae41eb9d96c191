// Command console measures the cost that the pages of package console have for a Redis:
//
//	go run ./console
//
// It starts a Redis for itself, publishes events to 100 topics with three groups each, and dead letters to ten of
// them. Then browsers load the first page, and renew their pages every two seconds, as the script of the console
// does: a third look at the overview, a third at a group, and a third at the dead letters of a topic.
//
// It prints how long the first page takes, the processor time of Redis with and without browsers, and the slowest
// commands by the slow log of the server. The log has the time on the clock, so a server that has lost its core in a
// command looks slow.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed41896749/eventbus"
	"github.com/seed41896749/eventbus/benchmarks/internal/broker"
	"github.com/seed41896749/eventbus/console"
	"github.com/seed41896749/eventbus/observer"
	"github.com/seed41896749/eventbus/redisstream"
)

const (
	topics  = 100
	dead    = 10 // of the topics have dead letters
	groups  = 3
	renewal = 2 * time.Second // of a page, by its script
)

func main() {
	events := flag.Int("events", 1_000_000, "the `number` of events in all topics")
	letters := flag.Int("letters", 50_000, "the `number` of dead letters")
	browsers := flag.Int("browsers", 10, "the `number` of browsers")
	time := flag.Duration("time", time.Minute, "how long browsers look")
	flag.Parse()
	ctx := context.Background() //nolint:forbidigo // the program begins here
	if err := measure(ctx, *events, *letters, *browsers, *time); err != nil {
		log.Fatal(err)
	}
}

func measure(ctx context.Context, events, letters, browsers int, long time.Duration) error {
	process, err := broker.Start(ctx, "redis", "--slowlog-log-slower-than", "1000", "--slowlog-max-len", "100000")
	if err != nil {
		return err
	}
	defer process.Stop()
	client := redis.NewClient(&redis.Options{Addr: process.Addr, Protocol: 2, DisableIdentity: true})
	defer client.Close()
	bus, err := eventbus.Open(ctx, process.URL, eventbus.Options{Observer: observer.Observer{Failed: func(observer.Failed) {}}}, redisstream.Driver{})
	if err != nil {
		return err
	}
	defer bus.Shutdown(ctx)
	if err := fill(ctx, bus, events, letters); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%d topics, %d groups of each, %d events, %d dead letters, %d browsers\n", topics, groups, events, letters, browsers)

	idle, err := used(ctx, client, long/2)
	if err != nil {
		return err
	}
	server := httptest.NewServer(console.Handler(bus.Backend(), console.Options{}))
	defer server.Close()
	if err := client.Do(ctx, "slowlog", "reset").Err(); err != nil {
		return err
	}
	began := time.Now()
	if err := load(server.URL, false); err != nil {
		return err
	}
	first := time.Since(began)

	looking, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i := range browsers {
		all.Go(func() { browse(looking, server.URL+pageOf(i)) })
	}
	busy, err := used(ctx, client, long)
	stop()
	all.Wait()
	if err != nil {
		return err
	}
	slow, err := client.SlowLogGet(ctx, -1).Result()
	if err != nil {
		return err
	}
	slices.SortFunc(slow, func(a, b redis.SlowLog) int { return cmp.Compare(b.Duration, a.Duration) })
	fmt.Fprintf(os.Stdout, "first page %v; Redis used %.2f %% of a core, %.2f %% without browsers; %d commands of more than 1 ms, the slowest:\n", first.Round(time.Millisecond), 100*busy, 100*idle, len(slow))
	for _, s := range slow[:min(len(slow), 5)] {
		fmt.Fprintf(os.Stdout, "  %v %.100s\n", s.Duration, strings.Join(s.Args, " "))
	}
	return nil
}

// pageOf returns the page of a browser.
func pageOf(i int) string {
	topic := "topic-" + strconv.Itoa(i%dead)
	switch i % 3 {
	case 0:
		return "/"
	case 1:
		return "/group?topic=" + topic + "&name=group-0"
	}
	return "/letters?topic=" + url.QueryEscape(topic+".dlq")
}

// browse loads a page, and renews it until ctx ends.
func browse(ctx context.Context, page string) {
	for part := false; ; part = true {
		if err := load(page, part); err != nil {
			log.Print(err)
		}
		select {
		case <-time.After(renewal):
		case <-ctx.Done():
			return
		}
	}
}

func load(page string, part bool) error {
	r, err := http.NewRequest(http.MethodGet, page, nil)
	if err != nil {
		return err
	}
	if part {
		r.Header.Set("Eventbus-Part", "figures")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", page, answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// used returns the part of a core that Redis uses for a while.
func used(ctx context.Context, c *redis.Client, long time.Duration) (float64, error) {
	before, err := processor(ctx, c)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	time.Sleep(long)
	after, err := processor(ctx, c)
	return (after - before) / time.Since(began).Seconds(), err
}

// processor returns the seconds that Redis has used of a processor.
func processor(ctx context.Context, c *redis.Client) (sum float64, err error) {
	info, err := c.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(info, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}
