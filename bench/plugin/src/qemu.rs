//! QEMU's side: its names (version 1 of its plugin interface) and what it calls.
//!
//! The interface is that of `qemu-plugin.h` in QEMU 6.0 to 8.2. Later ones
//! refuse a plugin of this version when it is loaded, which is a clear error.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{ptr, slice};

use crate::decode::is_locked;

/// The version of the interface, which QEMU reads before anything else.
// SAFETY: nothing else in QEMU has this name; each plugin is opened for itself.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// What was asked for on QEMU's command line.
struct Wish {
    mark: u64,
    out: File,
}

static WISH: OnceLock<Wish> = OnceLock::new();
/// How many locked instructions were executed so far. QEMU's translated code
/// raises it, as the plain number that an atomic is in memory.
static LOCKED: AtomicU64 = AtomicU64::new(0);

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
    let (mut mark, mut out) = (None, None);
    for word in words {
        match word.split_once('=') {
            Some(("mark", hex)) => {
                mark = u64::from_str_radix(hex.trim_start_matches("0x"), 16).ok()
            }
            Some(("out", path)) => out = File::create(path).ok(),
            _ => {}
        }
    }
    let (Some(mark), Some(out)) = (mark, out) else {
        eprintln!("plugin: it takes mark=<address> and out=<file>");
        return 1;
    };
    if WISH.set(Wish { mark, out }).is_err() {
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
    let count = unsafe { qemu_plugin_tb_n_insns(block) };
    for i in 0..count {
        // SAFETY: as above, and `i` is below the count.
        let insn = unsafe { qemu_plugin_tb_get_insn(block, i) };
        // SAFETY: the instruction is one of this block's, here and below.
        if unsafe { qemu_plugin_insn_vaddr(insn) } == wish.mark {
            // SAFETY: as above; `marked` lives as long as QEMU.
            unsafe { qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, NO_REGS, null_mut()) };
        }
        // SAFETY: as above.
        let bytes = unsafe { qemu_plugin_insn_data(insn) };
        // SAFETY: as above.
        let size = unsafe { qemu_plugin_insn_size(insn) };
        // SAFETY: QEMU keeps that many bytes there while it translates.
        if is_locked(unsafe { slice::from_raw_parts(bytes, size) }) {
            let counter = ptr::from_ref(&LOCKED).cast_mut().cast();
            // SAFETY: the counter is a static, and may be written through a shared
            // reference; all translated code runs on one thread (see lib.rs).
            unsafe { qemu_plugin_register_vcpu_insn_exec_inline(insn, ADD_U64, counter, 1) };
        }
    }
}

/// Called when the guest is at the mark.
extern "C" fn marked(_cpu: c_uint, _data: *mut c_void) {
    if let Some(wish) = WISH.get() {
        // Whoever reads the file finds a line missing and says so.
        writeln!(&wish.out, "{}", LOCKED.load(Relaxed)).ok();
    }
}

/// The callback reads no registers of the guest.
const NO_REGS: c_int = 0;
/// Add to a 64-bit number.
const ADD_U64: c_int = 0;

// SAFETY: the declarations are those of qemu-plugin.h; QEMU is what loads us.
unsafe extern "C" {
    fn qemu_plugin_register_vcpu_tb_trans_cb(id: u64, call: extern "C" fn(u64, *const c_void));
    fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    fn qemu_plugin_tb_get_insn(block: *const c_void, index: usize) -> *mut c_void;
    fn qemu_plugin_insn_vaddr(insn: *const c_void) -> u64;
    fn qemu_plugin_insn_data(insn: *const c_void) -> *const u8;
    fn qemu_plugin_insn_size(insn: *const c_void) -> usize;
    fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut c_void,
        call: extern "C" fn(c_uint, *mut c_void),
        flags: c_int,
        data: *mut c_void,
    );
    fn qemu_plugin_register_vcpu_insn_exec_inline(
        insn: *mut c_void,
        operation: c_int,
        counter: *mut c_void,
        operand: u64,
    );
}
