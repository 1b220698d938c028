// The way of a CPU from its start-up IPI to Rust: real, protected, long mode.
//
// Copied to a page below 1 MiB; `page` in the comments is its physical address.
// The code is position-independent: in real mode CS is the page and offsets are
// within it; after that EBX holds the page, and all else comes from the
// parameter block at offset {params} (`Block` in `apstart.rs`), which the boot CPU
// filled in. There is no stack until the claim, and interrupts stay off throughout.
//
// No page is writable and executable at once: the tables at `cr3` need to map the
// page at its own address readable and executable only. The one write, the
// claim, goes through the mapping that the boot CPU writes by; and the GDT's
// accessed bits are set beforehand, so that the CPU does not write them.

    .pushsection .rodata.apstart, "a", @progbits
    .globl apstart_begin
    .globl apstart_32
    .globl apstart_64
    .globl apstart_end
    .balign 16

// ---- Real mode: CS:IP is page:0, nothing else is known. ----------------------
    .code16
apstart_begin:
    cli
    cld
    mov ax, cs
    mov ds, ax                          // so that [offset] is within the page
    movzx ebx, ax
    shl ebx, 4                          // EBX = page, for the rest of the way
    lgdt [{params} + {gdt_pointer}]
    // PE and ET only: INIT leaves CD and NW as they were, and with caches off
    // the rest would take very long.
    mov eax, 0x11
    mov cr0, eax
    jmp fword ptr [{params} + {far32}]  // to apstart_32, with CS = {code32}

// ---- Protected mode, paging off: addresses are physical. ---------------------
    .code32
apstart_32:
    mov ax, {data32}
    mov ds, ax
    mov es, ax
    mov ss, ax
    add ebx, {params}                   // EBX = parameter block from here on
    mov eax, [ebx + {cr4}]              // with PAE
    mov cr4, eax
    mov eax, [ebx + {cr3}]
    mov cr3, eax
    mov ecx, 0xc0000080                 // EFER: LME, and NXE before a table
    rdmsr                               // with NX bits is walked
    or eax, {efer}
    wrmsr
    mov eax, {cr0}                      // with PG and WP: long mode begins
    mov cr0, eax
    jmp fword ptr [ebx + {far64}]       // to apstart_64, with CS = {code64}

// ---- Long mode: addresses are virtual, the page at its own address. ----------
    .code64
apstart_64:
    mov ebx, ebx                        // the upper half is undefined so far
    mov rsi, [rbx + {own_address}]      // RSI = the block's writable mapping
    xor eax, eax
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov fs, eax
    mov gs, eax

    // This CPU's APIC id: the wide one, where a topology leaf has it. `apic_id` in
    // topology.rs must give the same answer.
    cpuid                               // leaf 0: the highest leaf
    mov edi, eax
    mov eax, 0x1f
    cmp edi, eax
    jb 2f
    xor ecx, ecx
    cpuid
    test bx, bx
    jnz 4f
2:  mov eax, 0xb
    cmp edi, eax
    jb 3f
    xor ecx, ecx
    cpuid
    test bx, bx
    jnz 4f
3:  mov eax, 1
    cpuid
    shr ebx, 24
    mov edx, ebx
4:                                      // EDX = my APIC id

    // "The ticket" in apstart.rs: read the ticket, then everything else, then swap
    // the ticket. If the swap succeeds, what was read was meant for this CPU.
    mov rax, [rsi + {ticket}]
    mov ecx, eax
    and ecx, {state_mask}
    cmp ecx, {waiting}
    jne 5f
    cmp edx, [rsi + {apic_id}]
    jne 5f
    mov r8,  [rsi + {stack_top}]
    mov r9,  [rsi + {entry}]
    mov rdi, [rsi + {argument}]
    lea rcx, [rax + {claimed} - {waiting}]
    lock cmpxchg [rsi + {ticket}], rcx
    jne 5f

    // The stack is ours. A zero return address ends backtraces, and leaves RSP
    // at 8 modulo 16, as a function expects it after a call. Its arguments (`Entry`
    // in apstart.rs) are in place: RDI, RSI the block, EDX the id, RCX the ticket.
    mov rsp, r8
    xor ebp, ebp
    push 0
    jmp r9

    // Too late, or not meant: count, and stay here until the next INIT.
5:  lock inc dword ptr [rsi + {late}]
6:  cli
    hlt
    jmp 6b
apstart_end:
    .popsection
