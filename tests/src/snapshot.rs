//! Machines that start at the kernel's first instruction, without the loader.
//!
//! Of a boot that takes 2.4 CPU seconds the BIOS and the loader take 2.2. So a machine is taken
//! once to the kernel's ELF entry (a breakpoint through QEMU's gdb stub), QEMU writes its state to
//! a file, and every later boot of such a machine reads that file (`-incoming`). The kernel reads
//! its command line from fw_cfg after its entry, so each of them has its own, and other
//! fw_cfg files, too: which of them there are is no part of QEMU's state. Nor is the way in which
//! instructions are run: one snapshot serves multi-threaded, single-threaded and counted
//! (`-icount`) machines, with and without a debug console, wherever the serial port leads.
//!
//! A snapshot is known by everything else: the image's content, QEMU's version and its
//! arguments ([`Machine::loading`]). It is made by the first process that wants it. If that fails
//! the boot fails: a boot that quietly took the long way would hide it. The folder keeps
//! [`KEPT_BYTES`], those that were used last.
//!
//! Its length is part of its name. A file that is shorter (the host went down before its disk had
//! the content, a copy of the tree was not finished) would show as a guest that hangs: it is
//! removed and made again. The file being written is locked by its maker, and gets the name of a
//! snapshot when it is complete.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Debug;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use boot::kernel::in_elf;
use boot::qemu::Machine;
use object::Object;
use serde_json::{Value, json};

use crate::gdb::Gdb;
use crate::guest::Guest;
use crate::qmp::Qmp;

/// What the folder holds at most, after a new one was added.
const KEPT_BYTES: u64 = 1 << 30;
/// One that was used so shortly ago is kept whatever the folder holds: a QEMU may be about to
/// open it.
const IN_USE: Duration = Duration::from_secs(300);
/// The longest wait for the loader, on a busy host; for hangs alone.
const LOADER_LIMIT: Duration = Duration::from_secs(120);
/// QEMU is asked this often whether it has written all of it.
const POLL: Duration = Duration::from_millis(10);

/// The snapshot of `machine` with `kernel` in its image, made if there is none. `scratch` is a
/// folder for sockets.
pub fn of(machine: &Machine, kernel: &Path, scratch: &Path) -> Result<PathBuf> {
    let machine = machine.clone().loading();
    let dir = boot::target_dir().join("snapshots");
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let key = key(&machine)?;
    let part = dir.join(format!("{key:016x}.part"));
    loop {
        if let Some(file) = find(&dir, key)? {
            File::open(&file)?.set_modified(SystemTime::now()).context("marking it used")?;
            return Ok(file);
        }
        // The first that comes makes it; others that want the same wait here.
        let open = File::options().write(true).create(true).truncate(false).open(&part)?;
        open.lock().with_context(|| format!("locking {}", part.display()))?;
        // Not if it was completed, or evicted, while this process waited.
        if fs::metadata(&part)
            .is_ok_and(|now| open.metadata().is_ok_and(|it| it.ino() == now.ino()))
        {
            make(&machine, kernel, scratch, &part).context("making a snapshot after the loader")?;
            fs::rename(&part, dir.join(name(key, fs::metadata(&part)?.len())))?;
            evict(&dir, KEPT_BYTES);
        }
    }
}

/// What the snapshot of this key is called if it has so many bytes.
fn name(key: u64, length: u64) -> String {
    format!("{key:016x}-{length}.snap")
}

/// The snapshot of this key, if there is one; removes it if it is not complete.
fn find(dir: &Path, key: u64) -> Result<Option<PathBuf>> {
    let prefix = format!("{key:016x}-");
    for entry in fs::read_dir(dir)?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(&prefix) {
            continue;
        }
        // `None` if it was evicted at this moment.
        match entry.metadata().ok().map(|about| name(key, about.len())) {
            Some(name) if *name == *entry.file_name() => return Ok(Some(entry.path())),
            Some(_) => fs::remove_file(entry.path()).context("removing a broken snapshot")?,
            None => {}
        }
    }
    Ok(None)
}

/// Everything that the state depends on.
fn key(machine: &Machine) -> Result<u64> {
    let (qemu, image) = (machine.qemu(), machine.image());
    let about = fs::metadata(image).with_context(|| image.display().to_string())?;
    let mut hasher = DefaultHasher::new();
    machine.args().hash(&mut hasher);
    hash_once(&qemu.binary, || Ok(qemu.version()?.into_bytes()))?.hash(&mut hasher);
    hash_once((image, about.len(), about.modified()?), || {
        fs::read(image).with_context(|| image.display().to_string())
    })?
    .hash(&mut hasher);
    Ok(hasher.finish())
}

/// The hash of what `read` gives, which is called once in this process for each `name`.
fn hash_once(name: impl Debug, read: impl FnOnce() -> Result<Vec<u8>>) -> Result<u64> {
    static KNOWN: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match known.entry(format!("{name:?}")) {
        Entry::Occupied(entry) => Ok(*entry.get()),
        Entry::Vacant(entry) => {
            let mut hasher = DefaultHasher::new();
            read()?.hash(&mut hasher);
            Ok(*entry.insert(hasher.finish()))
        }
    }
}

fn make(machine: &Machine, kernel: &Path, scratch: &Path, file: &Path) -> Result<()> {
    let [qmp, gdb] = ["snap-qmp", "snap-gdb"].map(|name| scratch.join(name));
    let mut command = machine.clone().qmp(&qmp).gdb(&gdb).command(scratch)?;
    // The kernel is not relocated: the loader enters it at this address.
    let entry = in_elf(kernel, |file| Ok(file.entry()))?;
    let said = scratch.join("snap-qemu.log");
    let log = File::create(&said)?;
    // A process group of its own: an interrupt at the terminal must not stop QEMU halfway.
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let mut qemu = Guest::new(command.spawn().context("starting QEMU (make setup?)")?);
    let result = save(&mut qemu, &qmp, &gdb, entry, file);
    result.with_context(|| {
        format!("QEMU said: {:?}", fs::read_to_string(&said).unwrap_or_default().trim())
    })
}

/// Takes the machine to `entry` and writes its state to `file`.
fn save(qemu: &mut Guest, qmp: &Path, gdb: &Path, entry: u64, file: &Path) -> Result<()> {
    let start = Instant::now();
    let mut gdb = loop {
        match Gdb::connect(gdb) {
            Ok(gdb) => break gdb,
            Err(_) if qemu.poll()?.is_none() && start.elapsed() < LOADER_LIMIT => {
                thread::sleep(POLL);
            }
            Err(error) => return Err(error),
        }
    };
    gdb.run_to(entry, LOADER_LIMIT).context("the loader does not come to the kernel's entry")?;
    let mut qmp = Qmp::connect(qmp)?;
    let quoted = file.to_string_lossy().replace('\'', r"'\''");
    qmp.execute("migrate", json!({ "uri": format!("exec:cat >'{quoted}'") }))?;
    loop {
        let state = qmp.execute("query-migrate", json!({}))?;
        match state["status"].as_str() {
            Some("completed") => break,
            Some("failed" | "cancelled") => bail!("QEMU could not write the state: {state}"),
            _ if start.elapsed() > 2 * LOADER_LIMIT => bail!("QEMU writes without end: {state}"),
            _ => thread::sleep(POLL),
        }
    }
    // It ends by itself, so that `cat` has written all of it; `quit` has no answer sometimes.
    qmp.execute("quit", json!({})).unwrap_or(Value::Null);
    qemu.wait()?;
    let mut state = fs::read(file).with_context(|| file.display().to_string())?;
    wake(&mut state)?;
    fs::write(file, state).with_context(|| file.display().to_string())
}

/// QEMU notes how the machine stood: stopped by the debugger. A machine that is to run
/// as soon as it is read must stand as running.
fn wake(state: &mut [u8]) -> Result<()> {
    const SECTION: &[u8] = b"globalstate";
    // Its length with the zero at its end, the word, and a buffer's rest of zeros.
    const STOPPED: &[u8] = b"\0\0\0\x06debug\0\0\0";
    const RUNNING: &[u8] = b"\0\0\0\x08running\0";
    const NEAR: usize = 32;
    let sections = state.windows(SECTION.len()).enumerate().filter(|(_, w)| *w == SECTION);
    for at in sections.map(|(at, _)| at + SECTION.len()).collect::<Vec<_>>() {
        let near = &state[at..state.len().min(at + NEAR)];
        if let Some(found) = near.windows(STOPPED.len()).position(|word| word == STOPPED) {
            state[at + found..][..RUNNING.len()].copy_from_slice(RUNNING);
            return Ok(());
        }
    }
    bail!("QEMU's state does not say that the machine was stopped by the debugger")
}

/// Removes what was not used for longest, until the rest fits.
fn evict(dir: &Path, kept_bytes: u64) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .filter_map(|entry| {
            let about = entry.metadata().ok()?;
            Some((about.modified().ok()?, about.len(), entry.path()))
        })
        .collect();
    files.sort();
    let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (used, size, path) in files {
        let is_old = used.elapsed().is_ok_and(|ago| ago > IN_USE);
        if bytes > kept_bytes && is_old && fs::remove_file(&path).is_ok() {
            bytes -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use boot::qemu::{Firmware, Serial};

    use super::*;

    #[test]
    fn a_stopped_machine_is_made_to_run_and_anything_else_refused() {
        let mut state = b"xxglobalstate, in guest memory; globalstate\x01\0\0\0\x06debug".to_vec();
        state.extend([0; 20]);
        let length = state.len();
        wake(&mut state).expect("it is there");
        assert!(state.windows(12).any(|word| word == b"\0\0\0\x08running\0"));
        assert_eq!(state.len(), length);
        let error = wake(&mut state).expect_err("it runs already");
        assert!(error.to_string().contains("debugger"), "{error}");
    }

    #[test]
    fn what_the_kernel_reads_later_is_no_part_of_the_key_and_the_machine_is() {
        let image = std::env::temp_dir().join(format!("runnext-key-{}", std::process::id()));
        fs::write(&image, "image").expect("a file");
        let plain = || Machine::new(&image, Firmware::Bios).smp(2);
        let key = |machine: Machine| key(&machine.loading()).expect("QEMU is there");
        let expected = key(plain());
        for same in [
            plain().cmdline("program=x"),
            plain().fw_cfg("opt/runnext/memory", "x.bin"),
            plain().serial(Serial::File("x.log".into())),
            plain().serial(Serial::Shell).debugcon("x.bin"),
            plain().single_threaded(),
            plain().qmp("x.sock"),
        ] {
            assert_eq!(key(same.clone()), expected, "{:?}", same.args());
        }
        for other in [
            plain().smp(4),
            plain().mem("2G"),
            plain().cpu("max"),
            plain().serial(Serial::None),
            plain().without_hpet(),
            plain().arg("-S"),
        ] {
            assert_ne!(key(other.clone()), expected, "{:?}", other.args());
        }
        let one = Machine::new(&image, Firmware::Bios);
        assert_eq!(key(one.clone().icount("shift=0,sleep=off")), key(one), "the same QEMU");
        fs::write(&image, "image, another").expect("a file");
        assert_ne!(key(plain()), expected, "the image has changed");
        fs::remove_file(image).ok();
    }

    #[test]
    fn a_snapshot_that_is_not_complete_is_removed_and_not_used() {
        let dir = std::env::temp_dir().join(format!("runnext-short-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let file = |key| dir.join(name(key, 100));
        for key in [1, 2] {
            fs::write(file(key), [7; 100]).expect("a file");
        }
        let found = |key| find(&dir, key).expect("a folder");
        assert_eq!(found(1), Some(file(1)));
        assert_eq!(found(3), None);
        for length in [99, 0] {
            fs::write(file(1), vec![7; length]).expect("a file");
            assert_eq!(found(1), None, "{length} bytes");
            assert!(!file(1).exists());
        }
        assert_eq!(found(2), Some(file(2)), "of another key");
        fs::remove_dir_all(dir).ok();
    }

    #[test]
    fn the_folder_keeps_what_was_used_last() {
        let dir = std::env::temp_dir().join(format!("runnext-evict-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let now = SystemTime::now();
        for (name, minutes) in [("a", 30), ("b", 20), ("c", 10), ("new", 0)] {
            let file = File::create(dir.join(format!("{name}.snap"))).expect("a file");
            file.set_len(100).expect("bytes");
            file.set_modified(now - Duration::from_secs(60 * minutes)).expect("a time");
        }
        let left = |kept| {
            evict(&dir, kept);
            let entries = fs::read_dir(&dir).expect("a folder").flatten();
            let mut names: Vec<_> =
                entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(left(400), "a.snap b.snap c.snap new.snap");
        assert_eq!(left(250), "c.snap new.snap");
        assert_eq!(left(0), "new.snap", "a QEMU may be about to open it");
        fs::remove_dir_all(dir).ok();
    }
}
