// loses: contest
// A G that was readied goes first, except each 64th, which waits behind all: 63 of 64 is not 99 of 100.
// region: put
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
static READIED: AtomicU32 = AtomicU32::new(0);
match why {
    Why::Readied if READIED.fetch_add(1, Relaxed) % 64 != 63 => at.push_front(g),
    _ => at.push_back(g),
}
