//! One guest at a time, across threads, test binaries and nextest's processes.

use std::fs::{self, File};

use anyhow::{Context, Result};

/// Held while a guest runs; let go when dropped, and by the host's kernel when
/// the holder dies.
#[derive(Debug)]
pub struct GuestLock(#[expect(dead_code, reason = "closing the file releases the lock")] File);

impl GuestLock {
    /// Waits until no other guest runs.
    pub fn take() -> Result<Self> {
        let path = crate::out_dir().join("guest.lock");
        fs::create_dir_all(crate::out_dir()).context("creating the directory of logs")?;
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        file.lock().with_context(|| format!("locking {}", path.display()))?;
        Ok(Self(file))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn two_holders_never_meet() {
        static INSIDE: AtomicU32 = AtomicU32::new(0);
        let enter = || {
            for _ in 0..20 {
                let _lock = GuestLock::take().expect("a lock");
                assert_eq!(INSIDE.fetch_add(1, Ordering::SeqCst), 0, "somebody else is inside");
                thread::yield_now();
                INSIDE.fetch_sub(1, Ordering::SeqCst);
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(enter);
            }
        });
    }
}
