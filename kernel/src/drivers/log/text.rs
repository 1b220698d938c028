//! A text to be printed: formatted on the stack, then on the heap.
//!
//! Holds [`Text`], which `log.rs` formats into. It is sent when it is complete; only if there
//! is no memory for it, or it has no end, it is sent in parts.

use alloc::vec::Vec;
use core::fmt::{self, Write};

/// Bytes of a text that need no heap.
pub const STACK_BUFFER: usize = 512;

/// Maximum bytes of a text on the heap. The rest of a longer one is another text.
pub const HEAP_BUFFER: usize = 32 << 20;

/// Room on the heap beyond what a part of a text needs, so that a few more characters do
/// not move all of it.
const SPARE: usize = 256;

/// A text that is being formatted: on the stack, then on the heap, else in parts.
pub struct Text<F: FnMut(&[u8])> {
    stack: [u8; STACK_BUFFER],
    used: usize,
    /// Holds everything so far once it is not empty; the stack is unused then.
    heap: Vec<u8>,
    send: F,
}

impl<F: FnMut(&[u8])> Text<F> {
    /// An empty text, to be sent by `send`.
    pub fn new(send: F) -> Self {
        Text { stack: [0; STACK_BUFFER], used: 0, heap: Vec::new(), send }
    }

    /// Sends the rest.
    pub fn finish(&mut self) {
        match self.heap.is_empty() {
            true if self.used == 0 => {}
            true => (self.send)(&self.stack[..self.used]),
            false => (self.send)(&self.heap),
        }
        self.used = 0;
        self.heap.clear();
    }

    /// Makes room for `more` on the heap, and moves the bytes on the stack there.
    fn grow(&mut self, more: usize) -> bool {
        let more = self.used + more;
        if self.heap.len() + more > HEAP_BUFFER || !self.reserve(more) {
            return false;
        }
        self.heap.extend_from_slice(&self.stack[..self.used]);
        self.used = 0;
        true
    }

    /// Reserves twice as much as there is, or as much as is needed.
    fn reserve(&mut self, more: usize) -> bool {
        self.heap.try_reserve(more + SPARE).is_ok() || self.heap.try_reserve_exact(more).is_ok()
    }

    /// Sends up to the last line end, or everything if there is none.
    fn send_lines(&mut self) {
        let text = if self.heap.is_empty() { &self.stack[..self.used] } else { &self.heap };
        let cut = text.iter().rposition(|&b| b == b'\n').map_or(text.len(), |at| at + 1);
        (self.send)(&text[..cut]);
        if self.heap.is_empty() {
            self.stack.copy_within(cut..self.used, 0);
            self.used -= cut;
        } else {
            self.heap.drain(..cut);
        }
    }
}

impl<F: FnMut(&[u8])> Write for Text<F> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut bytes = text.as_bytes();
        while !bytes.is_empty() {
            if self.heap.is_empty() && bytes.len() <= STACK_BUFFER - self.used {
                self.stack[self.used..][..bytes.len()].copy_from_slice(bytes);
                self.used += bytes.len();
                return Ok(());
            }
            if self.grow(bytes.len()) {
                self.heap.extend_from_slice(bytes);
                return Ok(());
            }
            // No memory, or a text without an end: in parts.
            if self.used + self.heap.len() > 0 {
                self.send_lines();
            } else {
                let (part, rest) = bytes.split_at(bytes.len().min(HEAP_BUFFER));
                (self.send)(part);
                bytes = rest;
            }
        }
        Ok(())
    }
}
