//! Reads a great deal from the serial port while every CPU is busy.
//!
//! `program=typing -- <bytes>`: one hog for each CPU, and a G that reads so many
//! bytes and says what they were. The host types them and compares.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use runnext::console;
use runnext::prelude::*;

use crate::check::{counters, join_all, wait_until};

runnext::main!(typing, main);

static STOP: AtomicBool = AtomicBool::new(false);

fn main() {
    let wanted: usize = args().first().and_then(|word| word.parse().ok()).unwrap_or(1 << 16);
    let progress = counters::<AtomicU64>(num_cpus());
    let hogs: Vec<_> = progress.iter().map(|count| go(move || hog(count))).collect();
    wait_until(|| progress.iter().all(|count| count.load(Relaxed) > 0));
    println!("TYPE {wanted} bytes");
    let checksum = read(wanted);
    STOP.store(true, Relaxed);
    join_all(hogs);
    let stats = console::input_stats();
    println!("TYPED {wanted} bytes, checksum {checksum:#018x}");
    println!("{stats:?}");
    assert_eq!(stats.bytes, wanted as u64, "bytes that were not typed, or not read");
    assert_eq!(stats.overruns + stats.garbled + stats.breaks, 0);
    assert!(stats.interrupts > 0);
}

/// FNV-1a of the next so many bytes; says at each quarter that it gets on.
fn read(wanted: usize) -> u64 {
    let mut checksum = 0xcbf2_9ce4_8422_2325u64;
    let (mut read, mut buffer) = (0, [0; 1024]);
    while read < wanted {
        let before = read * 4 / wanted;
        let limit = buffer.len().min(wanted - read);
        let n = console::read(&mut buffer[..limit]).expect("there is a port");
        for &byte in &buffer[..n] {
            checksum = (checksum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        read += n;
        if read * 4 / wanted > before {
            println!("{read} bytes read");
        }
    }
    checksum
}

fn hog(count: &AtomicU64) {
    while !STOP.load(Relaxed) {
        count.fetch_add(1, Relaxed);
        core::hint::spin_loop();
    }
}
