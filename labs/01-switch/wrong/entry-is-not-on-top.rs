// loses: first-run
// The address to go on at lies where a register is expected, and the reverse.
// region: prepare
// As `mcall` saves it, but that `entry` finds the stack as after a call: aligned, and on top of
// it the address to return to, which is none. There and at rbp backtraces end.
const WORD: usize = size_of::<usize>();
let words = [0, 0, entry as *const () as usize];
let sp = top - 4 * WORD;
// SAFETY: the caller's promise about the highest 128 bytes.
unsafe { (sp as *mut [usize; 3]).write(words) };
sp
