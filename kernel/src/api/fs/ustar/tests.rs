//! Valid archives, and damaged ones.

use super::*;
use std::vec::Vec;

#[derive(Debug, PartialEq, Eq)]
struct At(u64, Damage);

impl From<(u64, Damage)> for At {
    fn from((at, damage): (u64, Damage)) -> Self {
        At(at, damage)
    }
}

/// A header with a right checksum.
fn header(name: &[u8], kind: u8, size: &[u8]) -> Block {
    let mut block = [0; BLOCK];
    block[..name.len()].copy_from_slice(name);
    block[124..][..size.len()].copy_from_slice(size);
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    seal(&mut block);
    block
}

fn seal(block: &mut Block) {
    let sum = checksum(block);
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn file(name: &str, contents: &[u8]) -> Vec<u8> {
    let size = format!("{:011o}\0", contents.len());
    let mut bytes = header(name.as_bytes(), b'0', size.as_bytes()).to_vec();
    bytes.extend(contents);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

/// All entries; also checks that no block outside is read, and none twice.
fn entries(archive: &[u8]) -> Result<Vec<Entry>, At> {
    let (mut found, mut last) = (Vec::new(), None);
    let read = |at: u64, block: &mut Block| {
        assert!(last.is_none_or(|last| at > last), "the walk goes forward");
        last = Some(at);
        block.copy_from_slice(&archive[at as usize..][..BLOCK]);
        Ok::<(), At>(())
    };
    walk(archive.len() as u64, read, |entry| {
        assert!(entry.start + entry.size <= archive.len() as u64, "inside: {entry:?}");
        found.push(entry);
        Ok(())
    })?;
    Ok(found)
}

fn names(archive: &[u8]) -> Vec<String> {
    entries(archive).expect("a good archive").into_iter().map(|entry| entry.name).collect()
}

#[test]
fn files_are_found_with_their_contents() {
    let mut archive = file("a.txt", b"hello");
    archive.extend(header(b"d/", b'5', b"00000000000"));
    archive.extend(file("./d/b", &[7; 1000]));
    archive.extend([0; 2 * BLOCK]);
    let found = entries(&archive).expect("a good archive");
    let seen: Vec<_> = found.iter().map(|e| (e.name.as_str(), e.kind, e.size)).collect();
    let wanted = [("a.txt", Kind::File, 5), ("d", Kind::Directory, 0), ("d/b", Kind::File, 1000)];
    assert_eq!(seen, wanted);
    assert_eq!(&archive[found[0].start as usize..][..5], b"hello");
    assert_eq!(archive[found[2].start as usize..][..1000], [7; 1000]);
}

#[test]
fn what_tar_makes_is_read() {
    let dir = std::env::temp_dir().join(format!("runnext-ustar-{}", std::process::id()));
    let long = "x".repeat(60) + "/" + &"y".repeat(70);
    std::fs::create_dir_all(dir.join("x".repeat(60))).expect("a directory");
    std::fs::write(dir.join("one"), "1").expect("a file");
    std::fs::write(dir.join(&long), "2").expect("a file");
    let tar = std::process::Command::new("tar")
        .args(["--format=ustar", "--sort=name", "-C"])
        .arg(&dir)
        .args(["-c", "."])
        .output();
    std::fs::remove_dir_all(&dir).ok();
    let archive = tar.expect("every system has a tar").stdout;
    assert_eq!(names(&archive), ["one".to_string(), "x".repeat(60), long]);
}

#[test]
fn an_archive_may_end_without_its_mark() {
    assert_eq!(names(&file("a", b"1")), ["a"]);
    assert_eq!(names(&[]), [""; 0]);
    let mut cut = file("a", b"1");
    cut.extend([1; 100]);
    assert_eq!(names(&cut), ["a"], "less than a block is no header");
}

#[test]
fn what_is_no_archive_is_named() {
    assert_eq!(entries(&[0x55; 4096]), Err(At(0, Damage::NoHeader)));
    let mut archive = file("a", b"1");
    archive.extend([0xff; BLOCK]);
    assert_eq!(entries(&archive), Err(At(1024, Damage::NoHeader)));
}

#[test]
fn a_changed_header_is_noticed() {
    let archive = file("a", b"1");
    for at in (0..BLOCK).filter(|at| !(148..156).contains(at)) {
        let mut archive = archive.clone();
        archive[at] ^= 1;
        let error = entries(&archive).expect_err("a changed byte");
        assert!(matches!(error, At(0, Damage::Checksum | Damage::NoHeader)), "{at}: {error:?}");
    }
}

#[test]
fn sizes_that_are_no_numbers_are_refused() {
    for size in [&b"9"[..], b"-1", b"0x10", b"1 1", b"\0\0\0", b"            ", b"77777777777a"] {
        let archive = header(b"a", b'0', size);
        assert_eq!(entries(&archive), Err(At(0, Damage::Size)), "{size:?}");
    }
    let negative = header(b"a", b'0', &[0xff; 12]);
    assert_eq!(entries(&negative), Err(At(0, Damage::Size)));
    let mut huge = [0; 12];
    (huge[0], huge[1]) = (0x80, 1);
    assert_eq!(entries(&header(b"a", b'0', &huge)), Err(At(0, Damage::Size)), "beyond 64 bits");
}

#[test]
fn files_that_end_behind_the_end_are_refused() {
    for size in [&b"1"[..], b"777777777777", b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"] {
        assert_eq!(entries(&header(b"a", b'0', size)), Err(At(0, Damage::CutOff)), "{size:?}");
    }
    let whole = file("a", &[1; 600]);
    assert!(entries(&whole[..BLOCK + 600]).is_ok(), "padding may be missing");
    assert_eq!(entries(&whole[..BLOCK + 599]), Err(At(0, Damage::CutOff)));
}

#[test]
fn base_256_is_a_size() {
    let mut archive = header(b"a", b'0', b"\x80\0\0\0\0\0\0\0\0\0\x01\x02").to_vec();
    archive.resize(BLOCK + 0x102, 0);
    assert_eq!(entries(&archive).expect("good")[0].size, 0x102);
}

#[test]
fn names_that_cannot_be_used_are_passed_over() {
    let mut archive = Vec::new();
    for name in [&b"../etc/passwd"[..], b"a/../b", b"..", b"", b"/", b"./", b"\xff\xfe"] {
        archive.extend(header(name, b'0', b"0"));
    }
    archive.extend(header(b"good\0/../hidden", b'0', b"0"));
    archive.extend(header(b"/top//of/./it", b'0', b"0"));
    assert_eq!(names(&archive), ["good", "top/of/it"]);
}

#[test]
fn links_and_long_names_are_passed_over_with_what_they_carry() {
    let mut archive = header(b"link", b'2', b"7777").to_vec();
    let mut long = file("././@LongLink", b"a name that is long");
    long[156] = b'L';
    seal((&mut long[..BLOCK]).try_into().expect("a block"));
    archive.extend(long);
    archive.extend(file("after", b"1"));
    assert_eq!(names(&archive), ["after"]);
}

/// A small generator: the same bytes in every run.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Nothing panics, nothing loops, and no entry lies outside, whatever the bytes; with correct
/// checksums, so that the walk gets far.
#[test]
fn damaged_archives_end_in_an_error_or_in_good_entries() {
    let mut good = file("a", &[1; 700]);
    good.extend(header(b"d", b'5', b"0"));
    good.extend(file("b", &[2; 5000]));
    good.extend(file("c", b""));
    good.extend([0; 2 * BLOCK]);
    let (mut whole, mut damaged) = (0, 0);
    for seed in 0..20_000 {
        let mut random = noise(seed);
        let mut archive = good.clone();
        for _ in 0..1 + random() % 4 {
            let at = (random() % 4) as usize * BLOCK
                + [0, 124, 124, 156, 257, 345][random() as usize % 6];
            let at = at + random() as usize % 12;
            archive[at] = random() as u8;
        }
        archive.truncate(archive.len() - (random() % 3 * (random() % 3000)) as usize);
        for block in archive.as_chunks_mut::<BLOCK>().0 {
            if &block[257..262] == b"ustar" {
                seal(block);
            }
        }
        match entries(&archive) {
            Ok(_) => whole += 1,
            Err(_) => damaged += 1,
        }
    }
    assert!(whole > 1000 && damaged > 1000, "{whole} whole, {damaged} damaged: both are tried");
}
