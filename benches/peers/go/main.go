// The Go peer of the benchmarks: redsync, as its own documentation says to use it. See ../README.md for what it is
// told and what it answers.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

type turn struct{ asked, began, ended, released int64 }

func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return value
}

// One section. Where the tries of the library are used up, they begin anew: whoever wants a lock waits for it.
func section(locks *redsync.Redsync, key string, ttl time.Duration, work, end int64) (turn, error) {
	t := turn{asked: now()}
	mutex := locks.NewMutex(key, redsync.WithExpiry(ttl))
	for {
		err := mutex.LockContext(context.Background())
		if err == nil {
			break
		}
		if end > 0 && now() > end {
			return t, err
		}
	}
	t.began = now()
	for now() < t.began+work {
	}
	t.ended = now()
	_, err := mutex.UnlockContext(context.Background())
	t.released = now()
	return t, err
}

func main() {
	urls, key, mode := strings.Split(os.Args[2], ","), os.Args[3], os.Args[4]
	tasks, ttl := int(number(os.Args[5])), time.Duration(number(os.Args[6]))*time.Millisecond
	work := number(os.Args[7]) * 1000
	var pools []redsyncredis.Pool
	for _, url := range urls {
		options, err := redis.ParseURL(url)
		if err != nil {
			panic(err)
		}
		pools = append(pools, goredis.NewPool(redis.NewClient(options)))
	}
	locks := redsync.New(pools...)
	keyOf := func(task int) string {
		if mode == "each" {
			return fmt.Sprintf("%s:%d", key, task)
		}
		return key
	}
	if _, err := section(locks, fmt.Sprintf("%s:warm:%d", key, os.Getpid()), ttl, 0, 0); err != nil {
		panic(err)
	}
	input := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	if !input.Scan() {
		return
	}
	words := strings.Fields(input.Text())
	start, end := number(words[0]), number(words[1])
	go func() {
		for input.Scan() {
		}
		os.Exit(0)
	}()
	time.Sleep(time.Duration(start - now()))
	turns, failures := make([][]turn, tasks), make([][]string, tasks)
	var all sync.WaitGroup
	for task := 0; task < tasks; task++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for now() < end {
				t, err := section(locks, keyOf(task), ttl, work, end)
				if err != nil && t.ended == 0 {
					failures[task] = append(failures[task], err.Error())
				} else {
					turns[task] = append(turns[task], t)
				}
			}
		}()
	}
	all.Wait()
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	for task := range turns {
		for _, t := range turns[task] {
			fmt.Fprintln(output, "turn", t.asked, t.began, t.ended, t.released)
		}
		for _, failure := range failures[task] {
			fmt.Fprintln(output, "failure", strings.ReplaceAll(failure, "\n", " "))
		}
	}
	fmt.Fprintln(output, "done")
}
