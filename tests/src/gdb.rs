//! A client of QEMU's gdb stub: runs a machine to an address, and no more.
//!
//! A packet is `$text#sum`, acknowledged by `+`. The stub stops all CPUs when one of them
//! comes to a breakpoint.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The longest wait for an answer to what takes no time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the stub of one QEMU.
#[derive(Debug)]
pub struct Gdb(UnixStream);

impl Gdb {
    /// Connects.
    pub fn connect(socket: &Path) -> Result<Self> {
        UnixStream::connect(socket).map(Self).context("connecting to QEMU's gdb stub")
    }

    /// Lets the machine run until a CPU is about to execute the instruction at `address`; it
    /// is stopped then.
    pub fn run_to(&mut self, address: u64, limit: Duration) -> Result<()> {
        // A hardware breakpoint: nothing is written to memory that is not there yet.
        let breakpoint = format!("1,{address:x},1");
        self.ask(&format!("Z{breakpoint}"), "OK", PATIENCE)?;
        self.ask("c", "T05", limit)?;
        self.ask(&format!("z{breakpoint}"), "OK", PATIENCE)
    }

    fn ask(&mut self, packet: &str, expected: &str, limit: Duration) -> Result<()> {
        self.0.set_read_timeout(Some(limit))?;
        write!(self.0, "{}", frame(packet)).context("writing to QEMU's gdb stub")?;
        let answer = self.answer().with_context(|| format!("no answer to {packet}"))?;
        if !answer.starts_with(expected) {
            bail!("the answer to {packet} is {answer:?}, not {expected}");
        }
        Ok(())
    }

    /// The text of the next packet.
    fn answer(&mut self) -> Result<String> {
        let mut text = Vec::new();
        let mut byte = [0];
        let mut is_inside = false;
        loop {
            self.0.read_exact(&mut byte)?;
            match byte[0] {
                b'$' => is_inside = true,
                b'#' if is_inside => break,
                byte if is_inside => text.push(byte),
                _ => {} // an acknowledgement
            }
        }
        self.0.read_exact(&mut [0; 2])?; // the sum: a socket loses nothing
        self.0.write_all(b"+")?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn frame(packet: &str) -> String {
    let sum = packet.bytes().fold(0_u8, u8::wrapping_add);
    format!("${packet}#{sum:02x}")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_packet_has_its_sum() {
        assert_eq!(frame("OK"), "$OK#9a");
        assert_eq!(frame("c"), "$c#63");
    }

    /// Talks with a stub that gives these answers.
    fn run_with(answers: &'static [&'static str]) -> Result<()> {
        let (near, far) = UnixStream::pair()?;
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut far = far;
                if answers.is_empty() {
                    return; // and closes it
                }
                for answer in answers {
                    let mut byte = [0];
                    // A packet ends with its sum; acknowledgements before it are passed over.
                    while far.read_exact(&mut byte).is_ok() && byte != *b"#" {}
                    far.read_exact(&mut [0; 2]).ok();
                    write!(far, "+{}", frame(answer)).ok();
                }
                // Until the client has left: what it writes must not fail.
                far.read_to_end(&mut Vec::new()).ok();
            });
            Gdb(near).run_to(0xffff_ffff_8010_0000, PATIENCE)
        })
    }

    #[test]
    fn the_machine_is_stopped_at_the_address_or_it_is_an_error() {
        run_with(&["OK", "T05thread:01;", "OK"]).expect("it stops there");
        let error = run_with(&["OK", "W00"]).expect_err("it has ended");
        assert!(error.to_string().contains("W00"), "{error}");
        run_with(&["E22"]).expect_err("no breakpoint");
        run_with(&[]).expect_err("no answer at all");
        let nowhere = std::env::temp_dir().join("runnext-no-such-stub");
        assert!(Gdb::connect(&nowhere).is_err());
    }
}
