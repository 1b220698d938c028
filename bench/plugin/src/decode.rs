//! Which instructions of x86-64 lock.
//!
//! Those with a `lock` prefix, and `xchg` with memory, which locks without one.
//! Pure: bytes come in as QEMU has fetched them.

/// Whether the instruction with these bytes is a locked one.
pub fn is_locked(bytes: &[u8]) -> bool {
    const LOCK: u8 = 0xf0;
    let prefixes = bytes.iter().take_while(|&&byte| is_prefix(byte));
    if prefixes.clone().any(|&byte| byte == LOCK) {
        return true;
    }
    // The last prefix before the opcode may be REX.
    let mut rest = bytes[prefixes.count()..].iter().copied().skip_while(|byte| byte & 0xf0 == 0x40);
    let is_exchange = matches!(rest.next(), Some(0x86 | 0x87));
    let has_memory = rest.next().is_some_and(|modrm| modrm >> 6 != 0b11);
    is_exchange && has_memory
}

/// The legacy prefixes: lock and repeat, segments, the two sizes.
fn is_prefix(byte: u8) -> bool {
    let is_segment = matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65);
    is_segment || matches!(byte, 0xf0 | 0xf2 | 0xf3 | 0x66 | 0x67)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_prefix_counts_wherever_it_stands() {
        let inc = [0xf0, 0xff, 0x00];
        let gs_cmpxchg = [0x65, 0xf0, 0x48, 0x0f, 0xb1, 0x0d, 0, 0, 0, 0];
        let add_16_bit = [0x66, 0xf0, 0x01, 0x08];
        for bytes in [&inc[..], &gs_cmpxchg, &add_16_bit] {
            assert!(is_locked(bytes), "{bytes:02x?}");
        }
    }

    #[test]
    fn an_exchange_locks_with_memory_only() {
        assert!(is_locked(&[0x87, 0x07]), "xchg [rdi], eax");
        assert!(is_locked(&[0x48, 0x87, 0x45, 0xf8]), "xchg [rbp-8], rax");
        assert!(is_locked(&[0x86, 0x07]), "xchg [rdi], al");
        assert!(!is_locked(&[0x48, 0x87, 0xd8]), "xchg rax, rbx");
        assert!(!is_locked(&[0x90]), "nop, which is xchg eax, eax");
    }

    #[test]
    fn others_do_not() {
        let cmpxchg = [0x48, 0x0f, 0xb1, 0x0f];
        let mov_with_f0_in_it = [0xc7, 0x00, 0xf0, 0x87, 0x07, 0x00];
        for bytes in [&cmpxchg[..], &mov_with_f0_in_it, &[], &[0x66], &[0x48], &[0x87]] {
            assert!(!is_locked(bytes), "{bytes:02x?}");
        }
    }
}
