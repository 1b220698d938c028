// What the benchmarks boot beside ours: a Go program as /init of a Linux guest.
//
// Each workload is the one of the same name in bench/guest: the same work,
// counted the same way, so a change here is a change there. The names come as
// arguments (the kernel hands over what stands behind "--" on its command
// line). Most are repeated operations: a quarter of them to warm up, then all of
// them timed and reported as "BENCH <row> <operations> <nanoseconds>". The others
// report figures of their own, as "FIGURE <row> <number>".
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

// One of the two says what is done: each does about so many operations and says
// how many it did, own reports by itself.
type workload struct {
	name  string
	usual int
	each  func(int) int
	own   func(int)
}

var workloads = []workload{
	{name: "yield", usual: 200_000, each: yieldTwo},
	{name: "yield_many", usual: 1_000_000, each: yieldMany},
	{name: "chan_pingpong", usual: 100_000, each: pingPong},
	{name: "chan_buf_1x1", usual: 400_000, each: func(n int) int { return buffered(1, n) }},
	{name: "chan_buf_4x4", usual: 400_000, each: func(n int) int { return buffered(4, n/4) }},
	{name: "spawn_join", usual: 200_000, each: spawnJoin},
	{name: "select4", usual: 100_000, each: select4},
	{name: "select4_ready", usual: 100_000, each: select4Ready},
	{name: "mutex8", usual: 800_000, each: mutex8},
	{name: "forkjoin", usual: 1 << 16, each: forkJoin},
	{name: "blocking_nop", usual: 200_000, each: blockingNop},
	{name: "skynet", usual: 1_000_000, each: skynet},
	{name: "steal", usual: 1_000, own: steal},
	{name: "fairness", usual: 2_000, own: fairness},
	{name: "timer_late", usual: 100, own: timerLate},
	{name: "wake_busy", usual: 50, own: wakeBusy},
	{name: "handoff", usual: 200, own: handoff},
	{name: "short1", usual: 20, own: func(n int) { short("short1", n) }},
	{name: "short4", usual: 20, own: func(n int) { short("short4", n) }},
	{name: "million", usual: 1_000_000, own: million},
	{name: "live", usual: 1_000, own: live},
}

func main() {
	fmt.Println("BENCH version", runtime.Version(), release())
	for _, word := range os.Args[1:] {
		measure(word)
	}
	fmt.Println("BENCH end")
	// With -no-reboot this is QEMU's end.
	if os.Getpid() == 1 {
		syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART)
	}
}

func measure(word string) {
	name, value, _ := strings.Cut(word, "=")
	for _, w := range workloads {
		if w.name != name {
			continue
		}
		number := w.usual
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			number = n
		}
		if w.own != nil {
			w.own(number)
			return
		}
		w.each(number / 4)
		timed(name, func() int { return w.each(number) })
		return
	}
	fmt.Printf("no workload is called %q\n", name)
}

// timed does the work, which says how many operations it was, and reports what
// it took.
func timed(row string, work func() int) {
	mark()
	start := time.Now()
	done := work()
	took := time.Since(start).Nanoseconds()
	mark()
	fmt.Println("BENCH", row, done, took)
}

// mark is found by its name in the symbol table; its first instruction is where
// the emulator's plugin reads its counters.
//
//go:noinline
func mark() {}

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

// skynet is a tree, ten goroutines below each, whose leaves send their number up.
func skynet(leaves int) int {
	rounded := 1
	for rounded*10 <= leaves {
		rounded *= 10
	}
	sum := make(chan int)
	go branch(sum, 0, rounded)
	check(<-sum == rounded*(rounded-1)/2, "a leaf was lost")
	return rounded
}

func branch(up chan int, first, leaves int) {
	sum := first
	if leaves > 1 {
		sum = 0
		below := make(chan int)
		each := leaves / 10
		for i := range 10 {
			go branch(below, first+i*each, each)
		}
		for range 10 {
			sum += <-below
		}
	}
	up <- sum
}

func million(gs int) {
	gate := make(chan struct{})
	var group sync.WaitGroup
	freeBefore := freeMemory()
	timed("million_create", func() int { return waitFor(gate, &group, gs) })
	fmt.Println("FIGURE million_bytes", (freeBefore-freeMemory())/int64(gs))
	timed("million_wake", func() int {
		close(gate)
		group.Wait()
		return gs
	})
}

// live leaves so many goroutines parked while other workloads are measured.
func live(gs int) {
	var group sync.WaitGroup
	waitFor(make(chan struct{}), &group, gs)
}

func waitFor(gate chan struct{}, group *sync.WaitGroup, gs int) int {
	var waiting atomic.Int64
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
	return gs
}

// freeMemory is the machine's: what Linux and its page tables take counts too.
func freeMemory() int64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Freeram) * int64(info.Unit)
}
