// region: prepare
// As `mcall` saves it, but that `entry` finds the stack as after a call: aligned, and on top of
// it the address to return to, which is none. There and at rbp backtraces end.
const WORD: usize = size_of::<usize>();
let words = [entry as *const () as usize, 0, 0, 0x5eed];
let sp = top - 4 * WORD;
// SAFETY: the caller's promise about the highest 128 bytes.
unsafe { (sp as *mut [usize; 4]).write(words) };
sp
