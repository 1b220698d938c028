//! Compiles the C file as code of the kernel.
//!
//! - `-mno-red-zone`: a function that calls no other may keep values *below* its stack pointer
//!   under the usual ABI. Here the frame of a preemption is written there, on the stack of the G.
//! - `-mgeneral-regs-only`: Gs have no vector registers. A switch does not save any, so C code that
//!   used them would find those of another G. (No floating point either, as in the Rust code.)
//! - `-mcmodel=kernel`, `-fno-pic`, `-fno-pie`: code and data are in the highest 2 GiB of
//!   addresses, at fixed places.
//! - `-ffreestanding`: no C library; `memcpy` and `memset` are those of Rust's runtime.
//! - `-fstack-clash-protection`: a large frame touches each of its pages in order, as Rust code
//!   does. So it cannot step over the closed pages at the end of a stack, and a full stack is noticed.
//! - `-fasynchronous-unwind-tables`: a G whose stack is full in C unwinds through its frames.
//! - `-fno-omit-frame-pointer`: backtraces walk frame pointers.

fn main() {
    let mut build = cc::Build::new();
    build.file("src/mix.c").opt_level(2).warnings_into_errors(true);
    build.inherit_rustflags(false).pic(false);
    for flag in [
        "-mno-red-zone",
        "-mgeneral-regs-only",
        "-mcmodel=kernel",
        "-fno-pic",
        "-fno-pie",
        "-ffreestanding",
        "-fstack-clash-protection",
        "-fasynchronous-unwind-tables",
        "-fno-omit-frame-pointer",
        "-fno-stack-protector",
    ] {
        build.flag(flag);
    }
    build.compile("mix");
    println!("cargo::rerun-if-changed=src/mix.c");
}
