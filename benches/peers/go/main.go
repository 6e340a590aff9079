// The Go peers of the benchmarks: redsync and rueidislock, as their own documentation says to use them. See ../README.md
// for what it is told and what it answers.
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
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
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

// Waits for the lock on a key, and returns what gives it back; at most until `end`, if that is set.
type lock func(key string, end int64) (func() error, error)

func redsyncOn(urls []string, ttl time.Duration) lock {
	var pools []redsyncredis.Pool
	for _, url := range urls {
		options, err := redis.ParseURL(url)
		if err != nil {
			panic(err)
		}
		pools = append(pools, goredis.NewPool(redis.NewClient(options)))
	}
	locks := redsync.New(pools...)
	return func(key string, end int64) (func() error, error) {
		mutex := locks.NewMutex(key, redsync.WithExpiry(ttl))
		// Where the tries of the library are used up, they begin anew: whoever wants a lock waits for it.
		for {
			err := mutex.LockContext(context.Background())
			if err == nil {
				return func() error {
					_, err := mutex.UnlockContext(context.Background())
					return err
				}, nil
			}
			if end > 0 && now() > end {
				return nil, err
			}
		}
	}
}

// With a `majority` of one, on the first server; of more, on a cluster.
func rueidislockOn(urls []string, ttl time.Duration, majority int32) lock {
	var addresses []string
	for _, url := range urls {
		addresses = append(addresses, strings.TrimPrefix(url, "redis://"))
	}
	if majority == 1 {
		addresses = addresses[:1]
	}
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addresses},
		KeyValidity:    ttl,
		KeyMajority:    majority,
		NoLoopTracking: true,
	})
	if err != nil {
		panic(err)
	}
	return func(key string, end int64) (func() error, error) {
		ctx, stop := context.WithCancel(context.Background())
		if end > 0 {
			// It may wait for ever: it misses notices, and does not look by itself.
			late := time.AfterFunc(time.Duration(end-now())+grace, stop)
			defer late.Stop()
		}
		_, release, err := locks.WithContext(ctx, key)
		if err != nil {
			stop()
			return nil, err
		}
		return func() error {
			release()
			stop()
			return nil
		}, nil
	}
}

// How long after the end a task still waits for its lock.
const grace = 5 * time.Second

func section(acquire lock, key string, work, end int64) (turn, error) {
	t := turn{asked: now()}
	release, err := acquire(key, end)
	if err != nil {
		return t, err
	}
	t.began = now()
	for now() < t.began+work {
	}
	t.ended = now()
	err = release()
	t.released = now()
	return t, err
}

func main() {
	urls, key, mode := strings.Split(os.Args[2], ","), os.Args[3], os.Args[4]
	tasks, ttl := int(number(os.Args[5])), time.Duration(number(os.Args[6]))*time.Millisecond
	work := number(os.Args[7]) * 1000
	var locks lock
	switch os.Args[1] {
	case "redsync":
		locks = redsyncOn(urls, ttl)
	case "rueidislock":
		locks = rueidislockOn(urls, ttl, 1)
	case "rueidislock-majority":
		locks = rueidislockOn(urls, ttl, 2)
	default:
		panic(os.Args[1])
	}
	keyOf := func(task int) string {
		if mode == "each" {
			return fmt.Sprintf("%s:%d", key, task)
		}
		return key
	}
	if _, err := section(locks, fmt.Sprintf("%s:warm:%d", key, os.Getpid()), 0, 0); err != nil {
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
				t, err := section(locks, keyOf(task), work, end)
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
