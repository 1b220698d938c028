//! The last 64 KiB that were printed, for `dmesg` and for late consoles.

pub const RING_SIZE: usize = 64 * 1024;

pub struct Ring {
    bytes: [u8; RING_SIZE],
    /// The bytes ever written; the next byte goes to this, modulo the size.
    pub written: u64,
}

impl Ring {
    pub const fn new() -> Self {
        Ring { bytes: [0; RING_SIZE], written: 0 }
    }

    /// Appends, overwriting the oldest.
    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.bytes[self.written as usize % RING_SIZE] = byte;
            self.written += 1;
        }
    }

    /// The bytes written since position `from`, as two parts. If their start has been overwritten,
    /// they start with the oldest whole line.
    pub fn since(&self, from: u64) -> [&[u8]; 2] {
        let oldest = self.written.saturating_sub(RING_SIZE as u64);
        let length = (self.written - from.max(oldest)) as usize;
        let (newer, older) = self.bytes.split_at(self.written as usize % RING_SIZE);
        let newer = &newer[newer.len().saturating_sub(length)..];
        let older = &older[older.len() - (length - newer.len())..];
        if from >= oldest {
            return [older, newer];
        }
        let line_end = |text: &[u8]| text.iter().position(|&byte| byte == b'\n');
        match (line_end(older), line_end(newer)) {
            (Some(end), _) => [&older[end + 1..], newer],
            (None, Some(end)) => [&[], &newer[end + 1..]],
            (None, None) => [older, newer],
        }
    }
}
