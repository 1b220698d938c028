//! Deadlock: two Gs, two locks, taken in two orders.
//!
//! Each G has one lock and waits for the other's; main waits for both Gs. No G is left that
//! could end any of these waits. The G that closes the cycle is told so, while other programs
//! still run; the kernel reports which G waits for what, and ends the program.

use alloc::sync::Arc;
use runnext::prelude::*;
use runnext::sync::{Mutex, Semaphore};

runnext::main!(deadlock, main);

fn main() {
    let (left, right) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    // Each G has its first lock before it takes its second.
    let both = Arc::new(Semaphore::new(0));
    let takes = |name, first: &Arc<Mutex<()>>, second: &Arc<Mutex<()>>| {
        let (first, second, both) = (first.clone(), second.clone(), both.clone());
        let spawned = Go::new().name(name).spawn(move || {
            let _first = first.lock();
            both.release(1);
            both.acquire(2);
            both.release(2);
            let _second = second.lock();
        });
        spawned.expect("memory for a G")
    };
    let gs = [takes("left first", &left, &right), takes("right first", &right, &left)];
    gs.into_iter().for_each(|g| g.join().expect("no panic"));
    println!("this is never seen");
}
