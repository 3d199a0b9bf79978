// SPDX-License-Identifier: MIT

// The runtime's benchmark in Go: the work of runtime.c with time.AfterFunc. Prints a line "measure value" for each.
package main

import (
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"sort"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	localTimers = 1000
	localRounds = 1000
	threadCPU   = 3 // CLOCK_THREAD_CPUTIME_ID
)

func threadNs() int64 {
	var ts syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, threadCPU, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

func processNs() int64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func nothing() {}

// onThread runs fn in a goroutine that has a thread to itself.
func onThread(fn func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		fn()
		close(done)
	}()
	<-done
}

func startAndCancel() float64 {
	var timers [localTimers]*time.Timer
	for i := range timers {
		timers[i] = time.AfterFunc(time.Hour, nothing)
		timers[i].Stop()
	}
	begin := threadNs()
	for round := 0; round < localRounds; round++ {
		for i, t := range timers {
			t.Reset(30*time.Second + time.Duration(i)*time.Millisecond)
			t.Stop()
		}
	}
	return float64(threadNs()-begin) / (localTimers * localRounds)
}

func together() float64 {
	runtime.GOMAXPROCS(2)
	var alone float64
	var both [2]float64
	best := 1e9
	for n := 0; n < 3; n++ {
		onThread(func() { alone = startAndCancel() })
		done := make(chan struct{})
		for i := range both {
			go func(i int) {
				runtime.LockOSThread()
				both[i] = startAndCancel()
				done <- struct{}{}
			}(i)
		}
		<-done
		<-done
		if ratio := (both[0] + both[1]) / 2 / alone; ratio < best {
			best = ratio
		}
	}
	runtime.GOMAXPROCS(1)
	return best
}

func far(count int) {
	timers := make([]*time.Timer, count)
	for i := range timers {
		timers[i] = time.AfterFunc(time.Hour, nothing)
		timers[i].Stop()
	}
	var start float64
	onThread(func() {
		begin := threadNs()
		for i, t := range timers {
			t.Reset(time.Hour + time.Duration(i)*time.Microsecond)
		}
		start = float64(threadNs()-begin) / float64(count)
	})
	fmt.Println("R2", start)
	runtime.GC()
	time.Sleep(100 * time.Millisecond)
	begin := processNs()
	time.Sleep(time.Second)
	fmt.Println("R8", float64(processNs()-begin)/1e6)
	onThread(func() { fmt.Println("R1", startAndCancel()) })
	order := rand.Perm(count)
	onThread(func() {
		begin := threadNs()
		for _, i := range order {
			timers[i].Stop()
		}
		fmt.Println("R3", float64(threadNs()-begin)/float64(count))
	})
}

func firing(count int) {
	late := make([]float64, count)
	var fired int64
	step := time.Second / time.Duration(count)
	timers := make([]*time.Timer, count)
	var base time.Time
	for i := range timers {
		i := i
		timers[i] = time.AfterFunc(time.Hour, func() {
			late[i] = float64(time.Since(base.Add(time.Duration(i) * step)).Nanoseconds())
			atomic.AddInt64(&fired, 1)
		})
		timers[i].Stop()
	}
	base = time.Now().Add(time.Second/2 + time.Duration(count)*time.Microsecond)
	for i, t := range timers {
		t.Reset(time.Until(base.Add(time.Duration(i) * step)))
	}
	begin := processNs()
	for atomic.LoadInt64(&fired) < int64(count) {
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println("R4", float64(processNs()-begin)/float64(count))
	sort.Float64s(late)
	fmt.Println("R5", late[count/2]/1000)
	fmt.Println("R6", late[count-1-count/100]/1000)
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	firedCount, _ := strconv.Atoi(os.Args[2])
	fmt.Println("R7", together())
	far(count)
	firing(firedCount)
}
