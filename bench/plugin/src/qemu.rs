//! QEMU's side: its names, and what it calls.
//!
//! The interface is that of `qemu-plugin.h`, in version 1 (QEMU 6.0 to 8.2) or,
//! with the feature `copies`, 3 (QEMU 9.1 and newer), where the bytes of an
//! instruction are copied to us. A QEMU that wants the other refuses to load us.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::ptr::null_mut;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::decode::is_locked;

/// The version of the interface, which QEMU reads before anything else.
// SAFETY: nothing else in QEMU has this name; each plugin is opened for itself.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = if cfg!(feature = "copies") { 3 } else { 1 };

/// What was asked for on QEMU's command line.
struct Wish {
    mark: u64,
    out: File,
    /// Whether all instructions are counted, not the locked ones alone.
    is_all: bool,
}

static WISH: OnceLock<Wish> = OnceLock::new();
/// How many of the instructions that count were executed so far.
static COUNTED: AtomicU64 = AtomicU64::new(0);

/// Called once, when QEMU has loaded us. Anything but 0 ends QEMU.
///
/// # Safety
/// QEMU's promise: `argv` has `argc` strings that end with a zero.
// SAFETY: as for the version.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    _info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let count = usize::try_from(argc).unwrap_or(0);
    // SAFETY: the caller's promise; an empty list may come as null, so not then.
    let words = if count == 0 { &[][..] } else { unsafe { slice::from_raw_parts(argv, count) } };
    // SAFETY: the caller's promise.
    let words = words.iter().map(|&word| unsafe { CStr::from_ptr(word) }.to_string_lossy());
    let (mut mark, mut out, mut is_all) = (None, None, false);
    for word in words {
        match word.split_once('=') {
            Some(("mark", hex)) => {
                mark = u64::from_str_radix(hex.trim_start_matches("0x"), 16).ok()
            }
            Some(("out", path)) => out = File::create(path).ok(),
            Some(("count", "all")) => is_all = true,
            _ => {}
        }
    }
    let (Some(mark), Some(out)) = (mark, out) else {
        eprintln!("plugin: it takes mark=<address>, out=<file> and maybe count=all");
        return 1;
    };
    if WISH.set(Wish { mark, out, is_all }).is_err() {
        return 1;
    }
    // SAFETY: `id` is ours, and `translated` lives as long as QEMU: we are never
    // unloaded, for nothing here asks for it.
    unsafe { qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
    0
}

/// Called for each block that is translated.
extern "C" fn translated(_id: u64, block: *const c_void) {
    let Some(wish) = WISH.get() else { return };
    // SAFETY: QEMU has just handed the block to us.
    let insns = unsafe { qemu_plugin_tb_n_insns(block) };
    for i in 0..insns {
        // SAFETY: as above, and `i` is below the count.
        let insn = unsafe { qemu_plugin_tb_get_insn(block, i) };
        // SAFETY: the instruction is one of this block's, here and below.
        if unsafe { qemu_plugin_insn_vaddr(insn) } == wish.mark {
            // SAFETY: as above; `marked` lives as long as QEMU.
            unsafe { qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, NO_REGS, null_mut()) };
        }
        if wish.is_all || is_locked(bytes(insn, &mut [0; LONGEST])) {
            // SAFETY: as above; `count` lives as long as QEMU.
            unsafe { qemu_plugin_register_vcpu_insn_exec_cb(insn, count, NO_REGS, null_mut()) };
        }
    }
}

/// The bytes of the instruction, which is one of the block that is translated.
#[cfg(not(feature = "copies"))]
fn bytes(insn: *const c_void, _room: &mut [u8; LONGEST]) -> &[u8] {
    // SAFETY: the caller's promise.
    let first = unsafe { qemu_plugin_insn_data(insn) };
    // SAFETY: as above.
    let size = unsafe { qemu_plugin_insn_size(insn) };
    // SAFETY: QEMU keeps that many bytes there while it translates, and nobody
    // keeps them longer: they are looked at while it waits for us.
    unsafe { slice::from_raw_parts(first, size) }
}

/// The bytes of the instruction, which is one of the block that is translated.
#[cfg(feature = "copies")]
fn bytes(insn: *const c_void, room: &mut [u8; LONGEST]) -> &[u8] {
    // SAFETY: the caller's promise, and there is so much room.
    let size = unsafe { qemu_plugin_insn_data(insn, room.as_mut_ptr(), room.len()) };
    &room[..size.min(LONGEST)]
}

/// Called when an instruction that counts is executed, by whichever CPU.
extern "C" fn count(_cpu: c_uint, _data: *mut c_void) {
    COUNTED.fetch_add(1, Relaxed);
}

/// Called when the guest is at the mark.
extern "C" fn marked(_cpu: c_uint, _data: *mut c_void) {
    if let Some(wish) = WISH.get() {
        // Whoever reads the file finds a line missing and says so.
        writeln!(&wish.out, "{}", COUNTED.load(Relaxed)).ok();
    }
}

/// The callback reads no registers of the guest.
const NO_REGS: c_int = 0;
/// The most bytes that an instruction of x86 has.
const LONGEST: usize = 15;

// SAFETY: the declarations are those of qemu-plugin.h; QEMU is what loads us.
unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, call: extern "C" fn(u64, *const c_void));
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_vaddr(insn: *const c_void) -> u64;
    #[cfg(not(feature = "copies"))]
    fn qemu_plugin_insn_data(insn: *const c_void) -> *const u8;
    #[cfg(not(feature = "copies"))]
    fn qemu_plugin_insn_size(insn: *const c_void) -> usize;
    #[cfg(feature = "copies")]
    fn qemu_plugin_insn_data(insn: *const c_void, room: *mut u8, len: usize) -> usize;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut c_void,
        call: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
}
