//! Makes regions for the memory map, good and bad.
//!
//! The kernel takes regions from QEMU's fw_cfg and adds them to the loader's, so a
//! test can hand it what no firmware at hand would write.

/// Records in the making: start, end, kind.
///
/// ```
/// use tests::memory::Regions;
///
/// let file = Regions::new().usable(0, 4096).reserved(5, 6).bytes();
/// assert_eq!(file.len(), 2 * 24);
/// assert_eq!(file[8..17], [0, 16, 0, 0, 0, 0, 0, 0, 1]);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Regions(Vec<[u64; 3]>);

impl Regions {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Usable memory, from `start` to before `end`.
    pub fn usable(self, start: u64, end: u64) -> Self {
        self.kind(start, end, 1)
    }

    /// Reserved memory.
    pub fn reserved(self, start: u64, end: u64) -> Self {
        self.kind(start, end, 2)
    }

    /// Of any kind, also of one that there is not.
    pub fn kind(mut self, start: u64, end: u64, kind: u64) -> Self {
        self.0.push([start, end, kind]);
        self
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flatten().flat_map(|word| word.to_le_bytes()).collect()
    }
}
