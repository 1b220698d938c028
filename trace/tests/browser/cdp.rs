//! A headless Chromium, driven by its own protocol over two pipes.
//!
//! Chromium reads commands from file descriptor 3 and writes answers to 4, each a
//! line of JSON that a zero byte ends. A shell moves our pipes there, so that no
//! socket is opened and nothing unsafe is needed. One browser serves all tests,
//! one at a time, each with a tab of its own; it ends when its pipes are closed,
//! at the latest with this process. Every wait has a limit.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// For an answer, and for a page to load. Longer than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(120);

const FLAGS: [&str; 14] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

/// The browser, for one test at a time. Started by the first.
pub fn browser() -> MutexGuard<'static, Browser> {
    static BROWSER: OnceLock<Mutex<Browser>> = OnceLock::new();
    // A test that failed leaves the browser as good as it was.
    BROWSER.get_or_init(|| Mutex::new(Browser::start())).lock().unwrap_or_else(|e| e.into_inner())
}

pub struct Browser {
    child: Child,
    commands: ChildStdin,
    answers: Receiver<Value>,
    events: VecDeque<Value>,
    last: u64,
}

impl Browser {
    fn start() -> Browser {
        let profile = fresh_profile();
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null"#, "sh"]);
        command.arg(binary()).args(FLAGS);
        command.arg(format!("--user-data-dir={}", profile.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a shell");
        let commands = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for message in output.split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut browser = Browser { child, commands, answers, events: VecDeque::new(), last: 0 };
        browser.call(None, "Browser.getVersion", json!({}));
        browser
    }

    /// A tab of that size that shows `page`, once it has loaded.
    pub fn open(&mut self, page: &Path, width: u32, height: u32) -> Tab<'_> {
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let target = text(&target["targetId"]);
        let attach = json!({ "targetId": target, "flatten": true });
        let session = text(&self.call(None, "Target.attachToTarget", attach)["sessionId"]);
        self.events.clear();
        let mut tab = Tab { browser: self, target, session };
        for domain in ["Page", "Runtime", "Network", "Log"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.resize(width, height);
        tab.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        tab.wait_for("Page.loadEventFired");
        tab.settle();
        tab
    }

    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).and_then(|()| self.commands.flush()).unwrap_or_else(
            |error| panic!("the browser takes no command: {error}; {:?}", self.child.try_wait()),
        );
        let until = Instant::now() + PATIENCE;
        loop {
            let message = self.receive(until, method);
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push_back(message);
        }
    }

    fn receive(&mut self, until: Instant, why: &str) -> Value {
        let left = until.saturating_duration_since(Instant::now());
        self.answers.recv_timeout(left).unwrap_or_else(|error| {
            panic!("waiting for {why}: {error}; the browser: {:?}", self.child.try_wait())
        })
    }
}

/// A page that is open. It is closed, with its events looked at, by [`Tab::close`].
pub struct Tab<'a> {
    browser: &'a mut Browser,
    target: String,
    session: String,
}

impl Tab<'_> {
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// The value of an expression in the page.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub fn text(&mut self, selector: &str) -> String {
        text(&self.eval(&format!("document.querySelector({selector:?}).innerText")))
    }

    /// What the page's script says about itself.
    pub fn state(&mut self) -> Value {
        self.settle();
        self.eval("runnext.state()")
    }

    /// Until nothing moves any more and two frames have been drawn since.
    pub fn settle(&mut self) {
        self.eval(
            "new Promise((done) => {
                let frames = 0;
                const look = () => {
                    frames = runnext.state().gliding ? 0 : frames + 1;
                    if (frames > 2) done(); else requestAnimationFrame(look);
                };
                look();
            })",
        );
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let phone = width < 500;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": if phone { 2 } else { 1 }, "mobile": phone });
        self.call("Emulation.setDeviceMetricsOverride", size);
        self.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": phone }));
    }

    /// What the reader's system prefers, such as `prefers-color-scheme`.
    pub fn prefer(&mut self, name: &str, value: &str) {
        let features = json!({ "features": [{ "name": name, "value": value }] });
        self.call("Emulation.setEmulatedMedia", features);
        self.settle();
    }

    pub fn mouse(&mut self, kind: &str, x: f64, y: f64, more: Value) {
        let mut event = json!({ "type": kind, "x": x, "y": y });
        if let (Some(event), Some(more)) = (event.as_object_mut(), more.as_object()) {
            event.extend(more.clone());
        }
        self.call("Input.dispatchMouseEvent", event);
    }

    pub fn click(&mut self, x: f64, y: f64) {
        self.mouse("mouseMoved", x, y, json!({}));
        for kind in ["mousePressed", "mouseReleased"] {
            self.mouse(kind, x, y, json!({ "button": "left", "clickCount": 1 }));
        }
    }

    pub fn click_on(&mut self, selector: &str) {
        let (x, y) = self.middle(selector);
        self.click(x, y);
        self.settle();
    }

    /// Where the middle of an element is, after it was scrolled into view.
    pub fn middle(&mut self, selector: &str) -> (f64, f64) {
        let place = self.eval(&format!(
            "(() => {{ const e = document.querySelector({selector:?});
                e.scrollIntoView({{ block: 'nearest' }});
                const b = e.getBoundingClientRect();
                return [b.x + b.width / 2, b.y + b.height / 2]; }})()"
        ));
        (number(&place[0]), number(&place[1]))
    }

    /// A key by its name, such as `Home` or `+`.
    pub fn key(&mut self, key: &str) {
        let mut down = json!({ "type": "keyDown", "key": key });
        if key.chars().count() == 1 {
            down["text"] = key.into();
        } else if key == "Enter" {
            down["text"] = "\r".into();
        }
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
        self.settle();
    }

    pub fn type_text(&mut self, text: &str) {
        text.chars().for_each(|letter| self.key(&letter.to_string()));
    }

    /// A PNG of what is visible.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        unbase64(&text(&shot["data"]))
    }

    fn wait_for(&mut self, method: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.browser.events.iter().any(|event| event["method"] == method) {
            let message = self.browser.receive(until, method);
            self.browser.events.push_back(message);
        }
    }

    /// Closes the tab. What the page has complained about, and what it has asked
    /// others for, beyond itself.
    pub fn close(mut self) -> Vec<String> {
        self.settle();
        let events = std::mem::take(&mut self.browser.events);
        self.browser.call(None, "Target.closeTarget", json!({ "targetId": self.target }));
        events
            .iter()
            .filter(|event| event["sessionId"] == *self.session)
            .filter_map(complaint)
            .collect()
    }
}

fn complaint(event: &Value) -> Option<String> {
    let params = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(format!("exception: {params}")),
        "Runtime.consoleAPICalled" => Some(format!("console: {params}")),
        // That is for us, who look at its pixels.
        "Log.entryAdded" if params.to_string().contains("willReadFrequently") => None,
        "Log.entryAdded" => Some(format!("log: {params}")),
        "Network.requestWillBeSent" => {
            let url = params["request"]["url"].as_str()?;
            let own = url.starts_with("file:") && params["type"] == "Document";
            (!own && !url.starts_with("data:")).then(|| format!("request: {url}"))
        }
        _ => None,
    }
}

pub fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).into()
}

/// `CHROMIUM=` chooses another one.
fn binary() -> PathBuf {
    let named = std::env::var_os("CHROMIUM").filter(|name| !name.is_empty()).map(PathBuf::from);
    let usual = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
    let found = || {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
        usual
            .iter()
            .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)))
            .find(|p| p.is_file())
    };
    named.or_else(found).expect("no Chromium here: scripts/setup browser installs it")
}

/// An empty directory. What processes that are gone have left is removed.
fn fresh_profile() -> PathBuf {
    let parent = tool::tree::scratch();
    for entry in fs::read_dir(&parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("browser-");
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
    let dir = parent.join(format!("browser-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory for the browser");
    dir
}

fn unbase64(text: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => u32::from(letter - b'A'),
        b'a'..=b'z' => u32::from(letter - b'a') + 26,
        b'0'..=b'9' => u32::from(letter - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let letters: Vec<u8> = text.bytes().filter(|&letter| letter != b'=').collect();
    letters
        .chunks(4)
        .flat_map(|chunk| {
            let word = chunk.iter().fold(0, |word, &letter| word << 6 | digit(letter));
            let word = word << (6 * (4 - chunk.len()));
            word.to_be_bytes().into_iter().skip(1).take(chunk.len() - 1)
        })
        .collect()
}
