// loses: registers
// rbx and rbp are exchanged in each switch.
// region: leave
"push rbp",
"push rbx",
"call 2f",
"pop rbp",
"pop rbx",
".subsection 1",
"2:",
"mov [rsi + {sp}], rsp",
"mov rsp, [rdi + {bottom}]",
"jmp rdx",
".previous",
