// loses: first-run
// The first frame begins 8 bytes off: the first aligned store of a vector faults.
// region: prepare
// As `mcall` saves it, but that `entry` finds the stack as after a call: aligned, and on top of
// it the address to return to, which is none. There and at rbp backtraces end.
const WORD: usize = size_of::<usize>();
let words = [entry as *const () as usize, 0, 0];
let sp = top - 3 * WORD;
// SAFETY: the caller's promise about the highest 128 bytes.
unsafe { (sp as *mut [usize; 3]).write(words) };
sp
