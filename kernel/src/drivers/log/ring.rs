//! The last 64 KiB that were printed, for `dmesg` and for late consoles.
//!
//! Holds bytes and how many there ever were; `log.rs`, the only caller, locks and shows them.

/// Bytes that the ring keeps.
pub const RING_SIZE: usize = 64 * 1024;

/// The last [`RING_SIZE`] bytes that were printed.
pub struct Ring {
    bytes: [u8; RING_SIZE],
    /// The bytes ever written; the next byte goes to this, modulo the size.
    pub written: u64,
}

impl Ring {
    /// An empty ring.
    pub const fn new() -> Self {
        Ring { bytes: [0; RING_SIZE], written: 0 }
    }

    /// Appends, overwriting the oldest.
    pub fn push(&mut self, bytes: &[u8]) {
        // Of a text longer than the ring only the end is kept.
        let skipped = bytes.len().saturating_sub(RING_SIZE);
        self.written += skipped as u64;
        let mut rest = &bytes[skipped..];
        while !rest.is_empty() {
            let at = (self.written % RING_SIZE as u64) as usize;
            let (piece, later) = rest.split_at(rest.len().min(RING_SIZE - at));
            self.bytes[at..at + piece.len()].copy_from_slice(piece);
            self.written += piece.len() as u64;
            rest = later;
        }
    }

    /// The bytes written since position `from`, as two pieces. If their start has been overwritten,
    /// they start with the oldest whole line.
    pub fn since(&self, from: u64) -> (&[u8], &[u8]) {
        let oldest = self.written.saturating_sub(RING_SIZE as u64);
        let start = (from.max(oldest) % RING_SIZE as u64) as usize;
        let length = (self.written - from.max(oldest)) as usize;
        let first = length.min(RING_SIZE - start);
        let (older, newer) = (&self.bytes[start..start + first], &self.bytes[..length - first]);
        if from >= oldest {
            return (older, newer);
        }
        let line_end = |text: &[u8]| text.iter().position(|&byte| byte == b'\n');
        match (line_end(older), line_end(newer)) {
            (Some(end), _) => (&older[end + 1..], newer),
            (None, Some(end)) => (&[], &newer[end + 1..]),
            (None, None) => (older, newer),
        }
    }
}
