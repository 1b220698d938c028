//! A text to be printed: formatted on the stack, then on the heap.
//!
//! It is sent when it is complete; only if there is no memory for it, or it has no end, it is sent
//! in parts.

use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt::{self, Write};

pub const STACK_BUFFER: usize = 512;

/// Maximum bytes of a text on the heap. The rest of a longer one is another text.
pub const HEAP_BUFFER: usize = 32 << 20;

/// Room on the heap for a few more characters, which then do not move all of the text.
const SPARE: usize = 256;

pub struct Text<F: FnMut(&[u8])> {
    stack: ArrayVec<u8, STACK_BUFFER>,
    /// Holds everything so far once it is not empty; the stack is empty then.
    heap: Vec<u8>,
    send: F,
}

impl<F: FnMut(&[u8])> Text<F> {
    pub fn new(send: F) -> Self {
        Text { stack: ArrayVec::new(), heap: Vec::new(), send }
    }

    pub fn finish(self) {
        [&self.stack[..], &self.heap]
            .into_iter()
            .filter(|text| !text.is_empty())
            .for_each(self.send)
    }

    /// Makes room for `more` on the heap, and moves the bytes on the stack there.
    fn grow(&mut self, more: usize) -> bool {
        let more = self.stack.len() + more;
        let has_room = self.heap.len() + more <= HEAP_BUFFER
            && (self.heap.try_reserve(more + SPARE).is_ok()
                || self.heap.try_reserve_exact(more).is_ok());
        if has_room {
            self.heap.extend(self.stack.drain(..));
        }
        has_room
    }

    /// Sends up to the last line end, or everything if there is none.
    fn send_lines(&mut self) {
        let text = if self.heap.is_empty() { &self.stack[..] } else { &self.heap };
        let cut = text.iter().rposition(|&b| b == b'\n').map_or(text.len(), |at| at + 1);
        (self.send)(&text[..cut]);
        match self.heap.is_empty() {
            true => drop(self.stack.drain(..cut)),
            false => drop(self.heap.drain(..cut)),
        }
    }
}

impl<F: FnMut(&[u8])> Write for Text<F> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut bytes = text.as_bytes();
        while !bytes.is_empty() {
            if self.heap.is_empty() && self.stack.try_extend_from_slice(bytes).is_ok() {
                return Ok(());
            }
            if self.grow(bytes.len()) {
                self.heap.extend_from_slice(bytes);
                return Ok(());
            }
            // No memory, or a text without an end: in parts.
            if self.stack.len() + self.heap.len() > 0 {
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
