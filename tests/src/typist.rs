//! Types into a pipe, or at a terminal as a person would.
//!
//! A pseudo-terminal has two ends. QEMU has the one that looks like a terminal,
//! and puts it into raw mode, as it does with a real one; whatever it shows comes
//! out of the other end, and what is written there has been typed.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::outcome::lines_of;

/// How often the typist looks at what has come.
const POLL: Duration = Duration::from_millis(20);

/// Where keys go. Dropped, it waits until all that was shown is in the log: so
/// until QEMU, which has the terminal, has ended.
pub struct Keyboard {
    keys: Box<dyn Write + Send>,
    copier: Option<JoinHandle<()>>,
}

impl Keyboard {
    /// A pipe to standard input.
    pub fn pipe(stdin: ChildStdin) -> Self {
        Keyboard { keys: Box::new(stdin), copier: None }
    }

    /// A terminal of its own for `command`; what it shows goes to `log`.
    pub fn terminal(command: &mut Command, log: File) -> Result<Self> {
        let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("a pseudo-terminal")?;
        grantpt(&near).context("taking the pseudo-terminal")?;
        unlockpt(&near).context("unlocking the pseudo-terminal")?;
        let name = ptsname(&near, Vec::new()).context("the pseudo-terminal's name")?;
        let name = name.into_string().context("the pseudo-terminal's name")?;
        let far = OpenOptions::new().read(true).write(true).open(&name).context(name)?;
        command.stdin(far.try_clone()?).stdout(far);
        let near = File::from(near);
        let shown = near.try_clone()?;
        let copier = Some(thread::spawn(move || copy(shown, log)));
        Ok(Keyboard { keys: Box::new(near), copier })
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        if let Some(copier) = self.copier.take() {
            copier.join().ok();
        }
    }
}

/// Until the other end is closed, which reads as an error. What is read waits in memory for the disk:
/// a terminal that is not read for a second is a serial line that takes nothing, and the guest loses
/// what it prints.
fn copy(mut from: File, mut to: File) {
    let (shown, to_write) = mpsc::channel::<Vec<u8>>();
    thread::scope(|scope| {
        scope.spawn(move || to_write.iter().try_for_each(|bytes| to.write_all(&bytes)));
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            if shown.send(buffer[..read].to_vec()).is_err() {
                return;
            }
        }
        drop(shown);
    });
}

/// Types what there is to type, until the guest has ended. Not until all of it
/// is typed: QEMU would see the end of a file, and a serial line has none.
pub fn type_in(
    typed: &[(String, Vec<u8>)],
    mut keys: Keyboard,
    log: &Path,
    has_ended: &AtomicBool,
) {
    let (mut rest, mut seen) = (typed, 0);
    while !has_ended.load(Ordering::Relaxed) {
        let shown = fs::read(log).unwrap_or_default();
        let new = shown.get(seen..).unwrap_or_default();
        match rest {
            [(text, bytes), later @ ..] if lines_of(new).iter().any(|l| l.contains(text)) => {
                seen = shown.len();
                // A guest that ends before it has read all of it has its reasons.
                if keys.keys.write_all(bytes).is_err() {
                    return;
                }
                rest = later;
            }
            _ => thread::sleep(POLL),
        }
    }
}
