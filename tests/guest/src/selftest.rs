//! Checks the machine from inside: one promise a check, one line each.

use crate::check::{self, checks};
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use runnext::inspect;
use runnext::internals::arch;
use runnext::internals::drivers::irq;
use runnext::prelude::*;

runnext::main!(selftest, main);

fn main() {
    check::run(checks![
        a_panic_inside_core_runs_destructors,
        join_gives_the_panic_message,
        a_g_may_panic_again_when_the_first_was_caught,
        no_page_is_writable_and_executable,
        page_zero_and_the_low_half_are_unmapped,
        every_cpu_runs_gs,
        every_cpu_has_a_timer_that_fired,
        an_isa_interrupt_reaches_the_chosen_cpu,
        a_line_that_is_not_there_is_an_error,
        heap_blocks_never_overlap,
        an_absurd_allocation_is_an_error,
        an_absurd_stack_is_an_error,
        spawning_takes_no_global_heap_lock,
        stack_pages_are_committed_on_first_touch,
        stacks_go_back_when_gs_end,
        a_lock_excludes_on_all_cpus,
        the_clock_never_goes_back,
        detached_gs_run_to_their_end,
        an_unpark_that_comes_first_is_kept,
        no_unpark_is_lost_between_cpus,
        an_old_handle_unparks_nobody_else,
        gs_are_counted,
        every_cpu_counts_what_it_does,
    ]);
}

/// Notes when it is dropped, and in which order.
struct Note(&'static AtomicUsize, usize);

impl Drop for Note {
    fn drop(&mut self) {
        let so_far = self.0.load(Ordering::Relaxed);
        self.0.store(so_far * 10 + self.1, Ordering::Relaxed);
    }
}

#[inline(never)]
fn index(list: &[u32], i: usize, drops: &'static AtomicUsize) -> u32 {
    let _inner = Note(drops, 1);
    list[i]
}

fn a_panic_inside_core_runs_destructors() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let result = go(|| {
        let _outer = Note(&DROPS, 2);
        let list = vec![1, 2, 3];
        index(black_box(&list), black_box(7), &DROPS)
    })
    .join();
    assert!(result.is_err(), "the panic was lost");
    assert_eq!(DROPS.load(Ordering::Relaxed), 12, "inner first, then outer");
}

/// A panic that was caught is over: the next one is not a second at once.
fn a_g_may_panic_again_when_the_first_was_caught() {
    let result = go(|| {
        for n in 0..3 {
            assert!(runnext::internals::unwind::catch(|| panic!("number {n}")).is_err());
        }
        panic!("the last");
    });
    assert_eq!(result.join(), Err(JoinError::Panicked("the last".into())));
}

fn join_gives_the_panic_message() {
    let result = go(|| {
        let list: Vec<u32> = Vec::new();
        list[black_box(3)]
    })
    .join();
    let expected = "index out of bounds: the len is 0 but the index is 3";
    assert_eq!(result, Err(JoinError::Panicked(expected.into())));
}

fn no_page_is_writable_and_executable() {
    let audit = inspect::page_tables();
    assert!(audit.executable_pages > 0, "the walk saw no code at all: {audit:?}");
    assert_eq!(audit.writable_and_executable, 0, "{audit:?}");
}

fn page_zero_and_the_low_half_are_unmapped() {
    let audit = inspect::page_tables();
    assert!(!audit.page0_mapped, "{audit:?}");
    assert_eq!(audit.lower_half_pages, 0, "{audit:?}");
}

/// As many Gs as CPUs, none of which ends before every CPU has run one: they spin
/// meanwhile, so a CPU that never runs one is one that does not look for work.
fn every_cpu_runs_gs() {
    let seen: &'static [AtomicBool] =
        Vec::leak((0..num_cpus()).map(|_| AtomicBool::new(false)).collect());
    let runners: Vec<_> = (0..num_cpus())
        .map(|_| {
            go(move || {
                while !seen.iter().all(|seen| seen.load(Ordering::Acquire)) {
                    seen[current_cpu()].store(true, Ordering::Release);
                    check::spin();
                }
            })
        })
        .collect();
    runners.into_iter().for_each(|g| g.join().expect("no panic"));
}

fn every_cpu_has_a_timer_that_fired() {
    for cpu in inspect::cpus() {
        assert!(cpu.timer.is_some(), "{cpu:?}");
    }
}

/// The PIT's line 0 arrives at another input of the I/O APIC on nearly every
/// machine, so this also shows that the override is honoured.
fn an_isa_interrupt_reaches_the_chosen_cpu() {
    const VECTOR: u8 = 0x40;
    let last = num_cpus() - 1;
    for cpu in [0, last] {
        let (before, _) = irq::taken(VECTOR);
        arch::route_isa(0, VECTOR, cpu).expect("line 0 exists");
        // Channel 0, low and high byte, mode 0: one interrupt in about 1 ms.
        outb(0x43, 0b0011_0000);
        outb(0x40, 0xa9);
        outb(0x40, 0x04);
        while irq::taken(VECTOR).0 == before {
            yield_now();
        }
        arch::mask_isa(0).expect("line 0 exists");
        assert_eq!(irq::taken(VECTOR), (before + 1, cpu));
    }
}

fn outb(port: u16, value: u8) {
    // SAFETY: the PIT touches no memory, and the kernel uses channel 2 only.
    unsafe { core::arch::asm!("out dx, al", in("dx") port, in("al") value) };
}

fn a_line_that_is_not_there_is_an_error() {
    assert!(arch::route_isa(200, 0x40, 0).is_err());
    assert!(arch::route_isa(4, 0x20, 0).is_err(), "a vector of exceptions");
    assert!(arch::route_isa(4, 0x40, 999).is_err(), "no such CPU");
}

fn heap_blocks_never_overlap() {
    let workers: Vec<_> = (0..4 * num_cpus())
        .map(|worker| {
            go(move || {
                let mut random = 88172645463325252u64 ^ (worker as u64) << 7;
                let mut blocks: Vec<Vec<u8>> = Vec::new();
                for round in 0..400 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if blocks.len() < 40 {
                        blocks.push(vec![worker as u8; (random % 5000) as usize + 1]);
                    } else {
                        let block = blocks.swap_remove((random % 40) as usize);
                        assert!(block.iter().all(|&b| b == worker as u8), "a block was shared");
                    }
                    if round % 16 == 0 {
                        yield_now();
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("no overlap");
    }
}

fn an_absurd_allocation_is_an_error() {
    let mut list: Vec<u8> = Vec::new();
    assert!(list.try_reserve_exact(1 << 46).is_err());
    assert!(list.try_reserve_exact(4096).is_ok(), "the heap lives on");
}

fn an_absurd_stack_is_an_error() {
    let result = Go::new().stack_size(1 << 40).spawn(|| ());
    assert!(matches!(result, Err(SpawnError::StackTooLarge)));
}

fn spawning_takes_no_global_heap_lock() {
    const GS: usize = 512;
    let spawn_and_join = || {
        for _ in 0..GS {
            go(|| ()).join().expect("no panic");
        }
    };
    spawn_and_join(); // fills the caches
    let before = inspect::memory().heap.lock_acquisitions;
    spawn_and_join();
    let locks = inspect::memory().heap.lock_acquisitions - before;
    // Objects move between CPUs, so a cache overflows or runs dry now and
    // then, and exchanges a batch; far from once for each G.
    assert!(locks < GS / 4, "{locks} lock acquisitions for {GS} Gs");
}

/// Uses at least `bytes` of stack.
#[inline(never)]
fn use_stack(bytes: usize) -> usize {
    let frame = black_box([bytes as u8; 1024]);
    let deeper = if bytes > 1024 { use_stack(bytes - 1024) } else { 0 };
    deeper + frame[black_box(17)] as usize
}

fn stack_pages_are_committed_on_first_touch() {
    let g = Go::new().stack_size(1 << 20).spawn(|| {
        let before = inspect::memory().stacks.commits;
        black_box(use_stack(512 * 1024));
        inspect::memory().stacks.commits - before
    });
    let committed = g.expect("memory").join().expect("no panic");
    assert!(committed >= 128, "only {committed} pages came for 512 KiB");
}

fn stacks_go_back_when_gs_end() {
    let round = || {
        let gs: Vec<_> = (0..64).map(|_| go(|| black_box(use_stack(32 * 1024)))).collect();
        for g in gs {
            g.join().expect("no panic");
        }
    };
    round();
    let before = inspect::memory().frames.free;
    for _ in 0..8 {
        round();
    }
    let after = inspect::memory().frames.free;
    // Caches and reserves breathe; eight rounds that leaked would lose 4,096.
    assert!(before.saturating_sub(after) < 1024, "{before} frames free, then {after}");
}

fn a_lock_excludes_on_all_cpus() {
    static LOCK: runnext::internals::lock::IrqLock<u64> = runnext::internals::lock::IrqLock::new(0);
    static INSIDE: AtomicBool = AtomicBool::new(false);
    let workers: Vec<_> = (0..2 * num_cpus())
        .map(|_| {
            go(|| {
                for _ in 0..500 {
                    let mut count = LOCK.lock();
                    assert!(!INSIDE.swap(true, Ordering::AcqRel), "two inside");
                    *count += 1;
                    INSIDE.store(false, Ordering::Release);
                }
            })
        })
        .collect();
    let expected = 500 * workers.len() as u64;
    for worker in workers {
        worker.join().expect("nobody else inside");
    }
    assert_eq!(*LOCK.lock(), expected);
}

fn the_clock_never_goes_back() {
    static LATEST: AtomicU64 = AtomicU64::new(0);
    let slack = inspect::clock_uncertainty_ns();
    let readers: Vec<_> = (0..2 * num_cpus())
        .map(|_| {
            go(move || {
                let mut own = 0;
                for _ in 0..500 {
                    let others = LATEST.load(Ordering::Acquire);
                    let now = inspect::now_ns();
                    assert!(now >= own, "{now} after {own} on one G");
                    assert!(now + slack >= others, "{now} after {others} on another CPU");
                    LATEST.fetch_max(now, Ordering::AcqRel);
                    own = now;
                }
            })
        })
        .collect();
    for reader in readers {
        reader.join().expect("time goes forward");
    }
}

fn detached_gs_run_to_their_end() {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    for _ in 0..100 {
        drop(go(|| RAN.fetch_add(1, Ordering::AcqRel)));
    }
    while RAN.load(Ordering::Acquire) < 100 {
        yield_now();
    }
}

fn an_unpark_that_comes_first_is_kept() {
    current().unpark();
    current().unpark();
    park(); // returns at once
    assert!(!park_timeout(Duration::from_millis(1)), "two unparks left two permits");
}

/// Two Gs that wake each other, and a crowd that keeps the CPUs busy meanwhile.
fn no_unpark_is_lost_between_cpus() {
    const ROUNDS: usize = 2_000;
    let (to_left, from_right) = chan::bounded(1);
    let (to_right, from_left) = chan::bounded(1);
    let play = |tx: chan::Sender<GRef>, rx: chan::Receiver<GRef>| {
        go(move || {
            tx.send(current()).expect("the other is there");
            let other = rx.recv().expect("the other is there");
            for _ in 0..ROUNDS {
                other.unpark();
                park();
            }
            other.unpark(); // it may wait for one more
        })
    };
    let players = [play(to_right, from_right), play(to_left, from_left)];
    let crowd: Vec<_> =
        (0..num_cpus()).map(|_| go(|| (0..200).for_each(|_| yield_now()))).collect();
    players.into_iter().chain(crowd).for_each(|g| g.join().expect("no panic"));
}

/// A G's record is used again by the next one at once.
fn an_old_handle_unparks_nobody_else() {
    for _ in 0..100 {
        let ended = go(current).join().expect("no panic");
        let waits = go(|| park_timeout(Duration::from_micros(200)));
        ended.unpark();
        assert_eq!(waits.join(), Ok(false), "woken by a handle of another life");
    }
}

fn gs_are_counted() {
    let (tx, rx) = chan::bounded::<()>(1);
    let (before, created) = (num_goroutines(), stats().created);
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let rx = rx.clone();
            go(move || rx.recv())
        })
        .collect();
    assert_eq!(num_goroutines(), before + 100);
    assert_eq!(stats().created, created + 100);
    drop(tx);
    waiting.into_iter().for_each(|g| _ = g.join());
    // A G that has left its result is counted until it has left its CPU.
    while num_goroutines() > before {
        yield_now();
    }
    assert_eq!(stats().alive(), before as u64);
}

fn every_cpu_counts_what_it_does() {
    let before = stats();
    let pinned: Vec<_> = (0..num_cpus())
        .map(|cpu| Go::new().pin(cpu).spawn(|| (0..10).for_each(|_| yield_now())))
        .collect();
    pinned.into_iter().for_each(|g| g.expect("memory").join().expect("no panic"));
    let after = stats();
    assert_eq!(after.cpus.len(), num_cpus());
    for (cpu, (now, then)) in after.cpus.iter().zip(&before.cpus).enumerate() {
        assert!(now.switches >= then.switches + 10, "CPU {cpu}: {then:?}, then {now:?}");
    }
    if num_cpus() > 1 {
        assert!(after.cpus.iter().any(|cpu| cpu.wakes > 0), "nobody was woken: {after:?}");
    }
}
