//! The files of a run: what it leaves behind, and what goes with it.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;

use anyhow::{Context, Result};
use boot::Scratch;

use crate::outcome::lines_of;
use crate::qmp::Qmp;
use crate::screen::Screen;

/// What the guest of a run at a terminal wrote to its debug console.
pub fn trace_of(name: &str) -> PathBuf {
    crate::out_dir().join(format!("{name}.trace"))
}

/// The files of one run: those that stay, and a directory that goes.
pub(crate) struct Files {
    pub(crate) log: PathBuf,
    pub(crate) qemu_log: PathBuf,
    pub(crate) png: PathBuf,
    pub(crate) scratch: Scratch,
    /// Locked as long as the run lasts.
    _log: File,
}

impl Files {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let dir = crate::out_dir();
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let log = dir.join(format!("{name}.log"));
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(&log);
        let file = open.with_context(|| log.display().to_string())?;
        // Two runs of one name, such as a seed's in `make chaos` and in the suite, follow each
        // other.
        file.lock().with_context(|| format!("locking {}", log.display()))?;
        // The log of an earlier run must not be taken for this one's.
        file.set_len(0).with_context(|| log.display().to_string())?;
        Ok(Self {
            log,
            qemu_log: dir.join(format!("{name}.qemu.log")),
            png: dir.join(format!("{name}.png")),
            scratch: Scratch::new()?,
            _log: file,
        })
    }

    pub(crate) fn qmp(&self) -> PathBuf {
        self.scratch.path().join("qmp")
    }

    pub(crate) fn log_contains(&self, text: &str) -> bool {
        let bytes = fs::read(&self.log).unwrap_or_default();
        lines_of(&bytes).iter().any(|line| line.contains(text))
    }

    /// What the screen shows now.
    pub(crate) fn screen(&self, qmp: &mut Qmp) -> Result<Screen> {
        let ppm = self.scratch.path().join("screen.ppm");
        qmp.screendump(&ppm)?;
        Screen::read(&ppm)
    }

    /// Leaves a picture of the screen for people; PPM where QEMU is built without PNG.
    pub(crate) fn picture(&self, qmp: &mut Qmp) -> Result<PathBuf> {
        let ppm = self.png.with_extension("ppm");
        let png = qmp.screendump(&self.png).map(|()| self.png.clone());
        png.or_else(|_| qmp.screendump(&ppm).map(|()| ppm))
    }
}
