//! A client of QEMU's monitor (QMP): one JSON object a line over a socket.
//!
//! Only what the harness needs: registers, memory and screenshots of a running
//! guest. Every read has a limit, because the guest that is looked at is usually
//! one that hangs, and sometimes it is QEMU itself that does.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// The longest wait for one answer. 64 CPUs under load take seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many events may come before an answer; more means nonsense.
const MAX_EVENTS: usize = 1000;

/// A connection to the monitor of one QEMU.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Qmp {
    /// Connects and leaves negotiation mode.
    pub fn connect(socket: &Path) -> Result<Self> {
        let writer = UnixStream::connect(socket).context("connecting to QEMU's monitor")?;
        writer.set_read_timeout(Some(PATIENCE))?;
        writer.set_write_timeout(Some(PATIENCE))?;
        let mut qmp = Self { reader: BufReader::new(writer.try_clone()?), writer };
        let greeting = qmp.read_object()?;
        if greeting.get("QMP").is_none() {
            bail!("not a QMP greeting: {greeting}");
        }
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs one command and gives back what it returns.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.writer, "{line}").context("writing to QEMU's monitor")?;
        for _ in 0..MAX_EVENTS {
            match Answer::from_object(self.read_object()?) {
                Answer::Return(value) => return Ok(value),
                Answer::Error(why) => bail!("QEMU refuses {command}: {why}"),
                Answer::Event => {}
            }
        }
        bail!("no answer to {command} among {MAX_EVENTS} events")
    }

    /// Runs a line of the monitor for humans, as seen from CPU `cpu`.
    pub fn human(&mut self, line: &str, cpu: usize) -> Result<String> {
        let arguments = json!({ "command-line": line, "cpu-index": cpu });
        let answer = self.execute("human-monitor-command", arguments)?;
        Ok(answer.as_str().unwrap_or_default().to_string())
    }

    /// Writes what the screen shows to `file`: PNG if that is its extension, else PPM.
    pub fn screendump(&mut self, file: &Path) -> Result<()> {
        let mut arguments = json!({ "filename": file.to_string_lossy() });
        if file.extension().is_some_and(|kind| kind == "png") {
            arguments["format"] = "png".into();
        }
        self.execute("screendump", arguments).map(|_| ())
    }

    /// What the machine's real-time clock shows, in seconds of the year.
    pub fn rtc_seconds(&mut self) -> Result<u64> {
        let what = json!({ "path": "/machine", "property": "rtc-time" });
        let time = self.execute("qom-get", what)?;
        let part = |name: &str| time[name].as_u64().with_context(|| format!("{name} in {time}"));
        let days = part("tm_mon")? * 31 + part("tm_mday")?;
        let hours = days * 24 + part("tm_hour")?;
        Ok((hours * 60 + part("tm_min")?) * 60 + part("tm_sec")?)
    }

    fn read_object(&mut self) -> Result<Value> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).context("QEMU's monitor does not answer")?;
        if read == 0 {
            bail!("QEMU closed its monitor");
        }
        serde_json::from_str(&line).with_context(|| format!("QEMU's monitor said {line:?}"))
    }
}

/// What a line from QEMU is.
#[derive(Debug, PartialEq)]
enum Answer {
    Return(Value),
    Error(String),
    Event,
}

impl Answer {
    fn from_object(mut object: Value) -> Self {
        if let Some(error) = object.get("error") {
            let why = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given");
            return Self::Error(why.to_string());
        }
        match object.get_mut("return") {
            Some(value) => Self::Return(value.take()),
            None => Self::Event,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn answers_errors_and_events_are_told_apart() {
        let answer = |text| Answer::from_object(serde_json::from_str(text).expect("JSON"));
        assert_eq!(answer(r#"{"return": {}}"#), Answer::Return(json!({})));
        assert_eq!(answer(r#"{"event": "STOP", "data": {}}"#), Answer::Event);
        let error = answer(r#"{"error": {"class": "GenericError", "desc": "no such thing"}}"#);
        assert_eq!(error, Answer::Error("no such thing".into()));
    }

    #[test]
    fn events_before_an_answer_are_passed_over() {
        let socket = std::env::temp_dir().join(format!("runnext-qmp-{}", std::process::id()));
        let listener = UnixListener::bind(&socket).expect("a socket");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(b"{\"QMP\": {}}\n{\"return\": {}}\n").expect("write");
            stream.write_all(b"{\"event\": \"STOP\"}\n{\"return\": \"text\"}\n").expect("write");
            // The client writes too; keep the socket until it is done.
            BufReader::new(stream).lines().take(2).for_each(drop);
        });
        let mut qmp = Qmp::connect(&socket).expect("a greeting");
        assert_eq!(qmp.human("info status", 0).expect("an answer"), "text");
        assert!(qmp.human("info status", 0).is_err(), "the server has left");
        server.join().expect("the server ends");
        std::fs::remove_file(socket).ok();
    }
}
