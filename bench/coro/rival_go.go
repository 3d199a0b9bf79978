// SPDX-License-Identifier: MIT

// Go's goroutines, for the benchmark: see coro.c for what a rival is asked. Go has no bare switch: its figure for that is
// the same as for yielding. Yielding is measured on one processor, so that two goroutines do take turns.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var count int64
var duration time.Duration

func measureYield() {
	runtime.GOMAXPROCS(1)
	var all sync.WaitGroup
	all.Add(2)
	begin := time.Now()
	for i := 0; i < 2; i++ {
		go func() {
			for n := count / 2; n > 0; n-- {
				runtime.Gosched()
			}
			all.Done()
		}()
	}
	all.Wait()
	fmt.Printf("%.4f\n", float64(time.Since(begin).Nanoseconds())/float64(count))
}

func measureSleep() {
	lateness := make([]float32, count)
	for i := range lateness {
		lateness[i] = 1
	}
	var asleep, awake int64
	var spawned time.Duration
	var all sync.WaitGroup
	all.Add(int(count))
	begin := time.Now()
	sleeper := func() {
		deadline := time.Now().Add(duration)
		if atomic.AddInt64(&asleep, 1) == count {
			spawned = time.Since(begin)
		}
		time.Sleep(duration)
		late := time.Since(deadline)
		lateness[atomic.AddInt64(&awake, 1)-1] = float32(late.Nanoseconds()) / 1e3
		all.Done()
	}
	for i := int64(0); i < count; i++ {
		go sleeper()
	}
	all.Wait()
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	cpu := float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e6
	sort.Slice(lateness, func(i, j int) bool { return lateness[i] < lateness[j] })
	fmt.Printf("%.4f %.4f %.4f %.4f %.4f\n", float64(spawned.Nanoseconds())/1e6, cpu, float64(usage.Maxrss)/1024,
		lateness[count/2], lateness[count*99/100])
}

func main() {
	if len(os.Args) < 4 {
		os.Exit(2)
	}
	count, _ = strconv.ParseInt(os.Args[2], 10, 64)
	ms, _ := strconv.ParseInt(os.Args[3], 10, 64)
	duration = time.Duration(ms) * time.Millisecond
	if os.Args[1] == "sleep" {
		measureSleep()
	} else {
		measureYield()
	}
}
