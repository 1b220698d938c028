//! Files that a test makes, and that go when it ends.

use std::fs;
use tempfile::TempDir;

/// A directory with these files; it is removed when it is dropped.
pub fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().expect("a writable directory");
    for (path, content) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a writable tree");
        fs::write(path, content).expect("a writable tree");
    }
    root
}

/// A minimal ELF file with one section of this name and content.
pub fn elf(name: &str, content: &[u8]) -> Vec<u8> {
    let names = format!("\0{name}\0.shstrtab\0");
    let (content_at, names_at) = (64, 64 + content.len());
    let headers_at = names_at + names.len();
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // A static program for x86-64.
    for half in [2_u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes());
    for word in [0, 0, headers_at as u64] {
        file.extend(word.to_le_bytes());
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 0, 64, 3, 2] {
        file.extend(half.to_le_bytes());
    }
    file.extend(content);
    file.extend(names.as_bytes());
    let mut section = |name: u32, kind: u32, at: usize, bytes: usize| {
        file.extend(name.to_le_bytes());
        file.extend(kind.to_le_bytes());
        for word in [0, 0, at as u64, bytes as u64, 0, 1, 0] {
            file.extend(word.to_le_bytes());
        }
    };
    section(0, 0, 0, 0);
    section(1, 1, content_at, content.len());
    section(name.len() as u32 + 2, 3, names_at, names.len());
    file
}
