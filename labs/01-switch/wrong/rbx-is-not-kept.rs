// loses: registers
// Relies on the compiler for rbx, which does not save it: rbx cannot be named as changed.
// region: leave
"push rbp",
"push rax",
"call 2f",
"pop rax",
"pop rbp",
".subsection 1",
"2:",
"mov [rsi + {sp}], rsp",
"mov rsp, [rdi + {bottom}]",
"jmp rdx",
".previous",
