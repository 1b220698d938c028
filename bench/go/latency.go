// Workloads that ask how late something is or who gets the Ps, rather than what
// something costs. Those of bench/guest in latency.rs, sharing.rs and slices.rs,
// of which what a slice costs has no counterpart here.
package main

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	rounds = 20                   // how often a goroutine sleeps in timerLate
	nap    = 5 * time.Millisecond // how long it does
	call   = time.Millisecond     // how long the call of handoff blocks
	hogs   = 16                   // how many there are in fairness
)

func middleAndLast(row string, samples []int64) {
	slices.Sort(samples)
	fmt.Printf("FIGURE %s_p50 %d\n", row, samples[len(samples)*50/100])
	fmt.Printf("FIGURE %s_p99 %d\n", row, samples[len(samples)*99/100])
}

func timerLate(gs int) {
	all := make(chan []int64)
	for range gs {
		go func() { all <- naps(rounds) }()
	}
	var late []int64
	for range gs {
		late = append(late, <-all...)
	}
	middleAndLast("timer_late", late)
}

func wakeBusy(rounds int) {
	var stop atomic.Bool
	var group sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		group.Add(1)
		go func() {
			for !stop.Load() {
				work()
			}
			group.Done()
		}()
	}
	late := make(chan []int64)
	go func() { late <- naps(rounds) }()
	samples := <-late
	stop.Store(true)
	group.Wait()
	middleAndLast("wake_busy", samples)
}

func naps(rounds int) []int64 {
	late := make([]int64, 0, rounds)
	for range rounds {
		start := time.Now()
		time.Sleep(nap)
		late = append(late, max(0, (time.Since(start)-nap).Nanoseconds()))
	}
	return late
}

// short has goroutines that sleep and then compute for 10 µs, behind two hogs on
// each P: how long after its time each is done.
func short(row string, rounds int) {
	var stop atomic.Bool
	var group sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		group.Add(1)
		go func() {
			for !stop.Load() {
				work()
			}
			group.Done()
		}()
	}
	all := make(chan []int64)
	for n := range 32 {
		nap := time.Duration(5_000+130*n) * time.Microsecond
		go func() {
			took := make([]int64, 0, rounds)
			for range rounds {
				due := time.Now().Add(nap)
				time.Sleep(nap)
				for range 4 {
					work()
				}
				took = append(took, time.Since(due).Nanoseconds())
			}
			all <- took
		}()
	}
	var took []int64
	for range 32 {
		took = append(took, <-all...)
	}
	stop.Store(true)
	group.Wait()
	middleAndLast(row, took)
}

// handoff blocks in a system call of which the scheduler is told.
func handoff(rounds int) {
	asked := make(chan time.Time, 1)
	late := make(chan []int64)
	go func() {
		var mine []int64
		for at := range asked {
			mine = append(mine, time.Since(at).Nanoseconds())
		}
		late <- mine
	}()
	duration := syscall.NsecToTimespec(call.Nanoseconds())
	for range rounds {
		asked <- time.Now()
		err := syscall.Nanosleep(&duration, nil)
		check(err == nil || err == syscall.EINTR, "the call failed")
	}
	close(asked)
	middleAndLast("handoff", <-late)
}

func steal(gs int) {
	var ran atomic.Bool
	took := make([]int64, 0, gs)
	for range gs {
		ran.Store(false)
		start := time.Now()
		go func() { ran.Store(true) }()
		for !ran.Load() {
			pause()
		}
		took = append(took, time.Since(start).Nanoseconds())
	}
	middleAndLast("steal", took)
}

func fairness(milliseconds int) {
	var group sync.WaitGroup
	var lock sync.Mutex
	var all []int64
	var longest time.Duration
	start := time.Now()
	end := time.Duration(milliseconds) * time.Millisecond
	for range hogs {
		group.Add(1)
		go func() {
			done, gap, last := int64(0), time.Duration(0), time.Duration(0)
			for last < end {
				work()
				done++
				now := time.Since(start)
				gap = max(gap, now-last)
				last = now
			}
			lock.Lock()
			all, longest = append(all, done), max(longest, gap)
			lock.Unlock()
			group.Done()
		}()
	}
	group.Wait()
	fmt.Println("FIGURE fairness_share", slices.Min(all)*1_000/slices.Max(all))
	fmt.Println("FIGURE fairness_gap", longest.Nanoseconds())
}

// work is a while of work without a call, so that it can only be left by force.
func work() {
	for range 1_000 {
	}
	pause()
}

// pause is where the emulator lets the next CPU have its turn.
func pause()
