// What the benchmarks boot beside ours: a Go program as /init of a Linux guest.
//
// Each workload is the one of the same name in bench/guest: the same work,
// counted the same way, so a change here is a change there. The names come as
// arguments (the kernel hands over what stands behind "--" on its command
// line). For each a quarter of the work is done to warm up, then all of it is
// timed and reported as "BENCH <name> <operations> <nanoseconds>".
package main

import (
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type workload struct {
	name       string
	operations int
	run        func(int) int
}

// All but million, which is measured in another way.
var workloads = []workload{
	{"yield", 200_000, yieldTwo},
	{"yield_many", 1_000_000, yieldMany},
	{"chan_pingpong", 100_000, pingPong},
	{"chan_buf_1x1", 400_000, func(n int) int { return buffered(1, n) }},
	{"chan_buf_4x4", 400_000, func(n int) int { return buffered(4, n/4) }},
	{"spawn_join", 200_000, spawnJoin},
	{"select4", 100_000, select4},
	{"select4_ready", 100_000, select4Ready},
	{"mutex8", 800_000, mutex8},
	{"forkjoin", 1 << 16, forkJoin},
	{"blocking_nop", 200_000, blockingNop},
}

func main() {
	fmt.Println("BENCH version", runtime.Version(), release())
	for _, name := range os.Args[1:] {
		measure(name)
	}
	fmt.Println("BENCH end")
	// With -no-reboot this is QEMU's end.
	if os.Getpid() == 1 {
		syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)
	}
}

func measure(name string) {
	if size, ok := strings.CutPrefix(name, "million="); ok {
		gs, err := strconv.Atoi(size)
		check(err == nil && gs > 0, "how many?")
		million(gs)
		return
	}
	for _, w := range workloads {
		if w.name == name {
			w.run(w.operations / 4)
			start := time.Now()
			done := w.run(w.operations)
			fmt.Println("BENCH", name, done, time.Since(start).Nanoseconds())
			return
		}
	}
	fmt.Printf("no workload is called %q\n", name)
}

// release is the kernel's, as uname -r has it.
func release() string {
	var name syscall.Utsname
	if syscall.Uname(&name) != nil {
		return "unknown"
	}
	text := []byte{}
	for _, c := range name.Release {
		if c == 0 {
			break
		}
		text = append(text, byte(c))
	}
	return string(text)
}

func check(ok bool, what string) {
	if !ok {
		panic(what)
	}
}

func yieldTwo(switches int) int  { return yields(2, switches/2) }
func yieldMany(switches int) int { return yields(1_000, switches/1_000) }

func yields(gs, each int) int {
	var group sync.WaitGroup
	for range gs {
		group.Add(1)
		go func() {
			for range each {
				runtime.Gosched()
			}
			group.Done()
		}()
	}
	group.Wait()
	return gs * each
}

func mutex8(additions int) int {
	var lock sync.Mutex
	var group sync.WaitGroup
	count, each := 0, additions/8
	for range 8 {
		group.Add(1)
		go func() {
			for range each {
				lock.Lock()
				count++
				lock.Unlock()
			}
			group.Done()
		}()
	}
	group.Wait()
	check(count == 8*each, "an addition was lost")
	return 8 * each
}

func pingPong(trips int) int {
	ping, pong := make(chan uint64), make(chan uint64)
	go func() {
		for n := range ping {
			pong <- n
		}
	}()
	for n := range uint64(trips) {
		ping <- n
		check(<-pong == n, "another value came back")
	}
	close(ping)
	return trips
}

func buffered(pairs, each int) int {
	items := make(chan uint64, 128)
	var producers, consumers sync.WaitGroup
	var got atomic.Uint64
	for range pairs {
		producers.Add(1)
		go func() {
			for n := range uint64(each) {
				items <- n
			}
			producers.Done()
		}()
		consumers.Add(1)
		go func() {
			mine := uint64(0)
			for range items {
				mine++
			}
			got.Add(mine)
			consumers.Done()
		}()
	}
	producers.Wait()
	close(items)
	consumers.Wait()
	check(got.Load() == uint64(pairs*each), "an item was lost or doubled")
	return pairs * each
}

// The senders stay parked when it is over: a receiver cannot close a channel
// under them, as ours does, and eight parked goroutines take no time.
func select4(receives int) int {
	var chans [4]chan uint64
	for i := range chans {
		c := make(chan uint64)
		chans[i] = c
		go func() {
			for {
				c <- 0
			}
		}()
	}
	a, b, c, d := chans[0], chans[1], chans[2], chans[3]
	for range receives {
		select {
		case <-a:
		case <-b:
		case <-c:
		case <-d:
		}
	}
	return receives
}

func select4Ready(pairs int) int {
	var chans [4]chan uint64
	for i := range chans {
		chans[i] = make(chan uint64, 1)
	}
	a, b, c, d := chans[0], chans[1], chans[2], chans[3]
	for n := range uint64(pairs) {
		chans[n%4] <- n
		var got uint64
		select {
		case got = <-a:
		case got = <-b:
		case got = <-c:
		case got = <-d:
		}
		check(got == n, "another value came back")
	}
	return pairs
}

const batch = 1_000

func spawnJoin(gs int) int {
	var group sync.WaitGroup
	for range gs / batch {
		for range batch {
			group.Add(1)
			go func() { group.Done() }()
		}
		group.Wait()
	}
	return gs / batch * batch
}

func forkJoin(leaves int) int {
	counted := tree(bits.Len(uint(leaves)) - 1)
	check(counted == leaves, "a leaf was lost")
	return counted
}

func tree(depth int) int {
	if depth == 0 {
		return 1
	}
	var group sync.WaitGroup
	left := 0
	group.Add(1)
	go func() {
		left = tree(depth - 1)
		group.Done()
	}()
	right := tree(depth - 1)
	group.Wait()
	return left + right
}

// A null system call, by the short way: the scheduler is not told of it, so
// this is the least that a call costs under Linux. By the way that tells it
// (syscall.Syscall), as our calls do, it is half as much again.
func blockingNop(calls int) int {
	pid := uintptr(os.Getpid())
	for range calls {
		got, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
		check(got == pid, "another process")
	}
	return calls
}

func million(gs int) {
	gate := make(chan struct{})
	var waiting atomic.Int64
	var group sync.WaitGroup
	freeBefore := freeMemory()
	start := time.Now()
	for range gs {
		group.Add(1)
		go func() {
			waiting.Add(1)
			<-gate
			group.Done()
		}()
	}
	for waiting.Load() < int64(gs) {
		runtime.Gosched()
	}
	created := time.Since(start).Nanoseconds()
	used := freeBefore - freeMemory()

	start = time.Now()
	close(gate)
	group.Wait()
	fmt.Println("MILLION", gs, created, time.Since(start).Nanoseconds(), used)
}

// freeMemory is the machine's: what Linux and its page tables take counts too.
func freeMemory() int64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Freeram) * int64(info.Unit)
}
