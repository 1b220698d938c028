// region: put
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
// So many in a row may overtake the others, which wait at the tail; then one waits there, too.
static IN_A_ROW: AtomicU32 = AtomicU32::new(0);
match why {
    Why::Readied if IN_A_ROW.fetch_add(1, Relaxed) % 256 != 255 => at.push_front(g),
    _ => at.push_back(g),
}
