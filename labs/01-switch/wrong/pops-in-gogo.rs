// loses: boot
// gogo pops what mcall has pushed: a G that an interrupt took off its CPU has nothing there.
// region: leave
"call 2f",
".subsection 1",
"2:",
"push rbp",
"push rbx",
"mov [rsi + {sp}], rsp",
"mov rsp, [rdi + {bottom}]",
"jmp rdx",
".previous",
// region: enter
"mov rsp, [rsi + {sp}]",
"pop rbx",
"pop rbp",
"ret",
// region: prepare
// As `mcall` saves it, but that `entry` finds the stack as after a call: aligned, and on top of
// it the address to return to, which is none. There and at rbp backtraces end.
const WORD: usize = size_of::<usize>();
let words = [0, 0, entry as *const () as usize, 0, 0];
let sp = top - 6 * WORD;
// SAFETY: the caller's promise about the highest 128 bytes.
unsafe { (sp as *mut [usize; 5]).write(words) };
sp
