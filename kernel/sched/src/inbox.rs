//! The inbox of a CPU: where an interrupt, or another CPU, leaves a ready G.
//!
//! Lock-free, so it may be used in any context: a handler must not touch a run
//! queue (it may have interrupted its owner in the middle of a push) and must
//! not wait for a lock. Its owner takes all at once, in the order in which they
//! came. It also brings a pinned G to its CPU, as nobody can steal from here.
//!
//! It is a stack of links that is emptied by one swap and turned round. Nobody
//! ever takes a single G off it, so a G that comes back to the same place
//! (ABA) harms nobody.

use crate::g::G;
use crate::list::{Link, List};
use crate::sync::{Relaxed, const_fn, spin_loop};

/// Gs on their way to one CPU.
///
/// ```
/// use sched::{G, Inbox};
/// static INBOX: Inbox<()> = Inbox::new();
/// static A: G<()> = G::new(());
/// static B: G<()> = G::new(());
/// assert!(INBOX.push(&A)); // was empty: its CPU must be told
/// assert!(!INBOX.push(&B)); // it will be, or was, told for A
/// assert!(core::ptr::eq(INBOX.take_all().pop().unwrap(), &A));
/// ```
pub struct Inbox<K: 'static> {
    newest: Link<K>,
}

impl<K: 'static> Inbox<K> {
    const_fn! {
        /// An empty inbox.
        #[must_use]
        pub fn new() -> Self {
            Inbox { newest: Link::null() }
        }
    }
}

impl<K: Sync + 'static> Inbox<K> {
    /// Leaves `g` here. True if the inbox was empty: then the caller must see
    /// to it that the inbox's CPU looks (essay, "The inbox").
    ///
    /// Callers: anybody, in any context.
    #[must_use = "its CPU must be told"]
    pub fn push(&self, g: &'static G<K>) -> bool {
        loop {
            let newest = self.newest.load(Relaxed);
            g.next().store(newest, Relaxed);
            // Release in `replace` publishes the G and its link; pairs with
            // the swap in `take_all`.
            if self.newest.replace(newest, g) {
                return newest.is_none();
            }
            spin_loop();
        }
    }

    /// Takes all, oldest first. Caller: the CPU whose inbox it is.
    pub fn take_all(&self) -> List<K> {
        let mut list = List::new();
        let mut newest = self.newest.take();
        while let Some(g) = newest {
            newest = g.next().load(Relaxed);
            list.push_front(g);
        }
        list
    }

    /// Whether nobody is here at this instant.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.newest.is_null()
    }
}
