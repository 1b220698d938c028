//! The commands. Each shows its result on the serial line.

use super::bench;
use super::complete::nearest;
use super::fit::{fit, fit_line};
use super::parse::{COMMANDS, Command, Spec, Trace, Which};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;
use core::sync::atomic::Ordering::Relaxed;
use runnext::prelude::*;
use runnext::program::Share;
use runnext::stats::PInfo;
use runnext::tasks::{self, Killed};
use runnext::waiting::{Reason, Wait};
use runnext::{console, inspect, program, schedtrace, system, trace};

/// Shows a line, or several if it is wider than a terminal.
macro_rules! show {
    ($($words:tt)*) => { console::write(&fit(&format!($($words)*))) };
}

/// Carries out a command.
pub fn obey(command: &Command) {
    match command {
        Command::Help(name) => help(name.as_deref()),
        Command::GoMaxProcs(n) => gomaxprocs_command(*n),
        Command::Bench(name) => bench_command(name),
        Command::Mem => mem(),
        Command::Irq => irq_command(),
        Command::Dmesg(lines) => dmesg(*lines),
        Command::PowerOff => power_off(),
        Command::Reboot => runnext::reboot(),
        Command::Ps => ps(),
        Command::Top => super::top::run(),
        Command::Stack(g) => with_number(g, stack),
        Command::Run { program, share, words, in_background } => {
            super::run::run(program, *share, words, *in_background);
        }
        Command::Kill(g) => with_number(g, kill),
        Command::Nice(g, priority) => with_number(g, |g| nice(g, *priority)),
        Command::Trace(Trace::Start) => trace_start(),
        Command::Trace(Trace::Stop) => trace_stop(),
        Command::Sched { is_detailed: false } => {
            show!("system {}", system::running().name);
            show!("{}", schedtrace::line());
        }
        Command::Sched { is_detailed: true } => {
            show_system();
            show_topology();
            show_irqs_off();
            show!("{}", schedtrace::detail().trim_end());
        }
    }
}

/// How far the CPUs are from CPU 0, and what went over each distance so far.
fn show_topology() {
    if inspect::distance(0, 0).is_none() {
        return show!("topology: flat, every CPU is equally far from every other");
    }
    let far = |cpu| inspect::distance(0, cpu).map_or(String::new(), |d| format!("{cpu} {d}"));
    let from_0: Vec<String> = (1..num_cpus()).map(far).collect();
    show!("topology: from CPU 0 to CPU {}", from_0.join(", "));
    let sum = |of: fn(&PInfo) -> [u64; 5]| {
        let cpus = stats().cpus;
        core::array::from_fn(|i| cpus.iter().map(|cpu| of(cpu)[i]).sum())
    };
    show!("  steals: {}", super::top::listed(sum(|cpu| cpu.steals_at)));
    show!("  wakes:  {}", super::top::listed(sum(|cpu| cpu.wakes_at)));
}

/// The longest section with interrupts off, in a build in which that is measured.
fn show_irqs_off() {
    if let Some(longest) = inspect::longest_irqs_off() {
        show!("interrupts off: at most {longest}");
    }
}

/// The system of this boot: its four answers, and what it lacks.
fn show_system() {
    let about = system::running();
    show!("system {}", about.name);
    let questions =
        ["a ready G waits", "a processor looks", "the M under a G", "a call that blocks"];
    for (question, answer) in questions.into_iter().zip(about.answers) {
        show!("  {question:<18}  {answer}");
    }
    show!("  {:<18}  {}", "its drawback", about.drawback);
}

/// The programs of this image, by name.
pub fn programs() -> Vec<&'static str> {
    let mut names: Vec<_> = program::all().iter().map(|program| program.name()).collect();
    names.sort_unstable();
    names
}

/// What may follow a command, for completion.
pub fn words(command: &str) -> Vec<String> {
    let names = match command {
        "help" => [super::parse::names(), programs()].concat(),
        "run" => programs(),
        "bench" => bench::NAMES.into(),
        "trace" => ["start", "stop"].into(),
        "sched" => ["-v"].into(),
        "stack" | "kill" | "nice" => return gs_by_number_and_name(),
        _ => Vec::new(),
    };
    names.into_iter().map(String::from).collect()
}

/// The Gs as `stack` and `kill` take them: all numbers, then each name once.
fn gs_by_number_and_name() -> Vec<String> {
    let gs = tasks::gs();
    let mut names: Vec<_> = gs.iter().map(|g| &*g.name).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    // A name with a space in it would need quotes.
    let names = names.into_iter().filter(|name| !name.contains(' ')).map(String::from);
    gs.iter().map(|g| format!("{}", g.id)).chain(names).collect()
}

fn help(name: Option<&str>) {
    let Some(name) = name else {
        for Spec { name, arguments, help, .. } in COMMANDS {
            let usage = format!("{name} {arguments}");
            console::write(&fit_line(&format!("  {usage:26}{help}"), 28));
        }
        show!("programs: {}", programs().join(" "));
        return show!("`help run` has more about a command, `help hog` about a program");
    };
    match COMMANDS.iter().find(|spec| spec.name == name) {
        Some(Spec { name, arguments, help, .. }) => {
            show!("usage: {name} {arguments}\n  {help}");
            match *name {
                "bench" => show!("  names: {}", bench::NAMES.join(" ")),
                "run" => show!("  programs: {}", programs().join(" ")),
                _ => {}
            }
            if let Some((_, example)) = EXAMPLES.iter().find(|(of, _)| of == name) {
                show!("  {example}");
            }
        }
        None if programs().contains(&name) => {
            show!("usage: run {name} [words] [&]");
            show!("  a program; what it shows, and its words, stand at the head of its file");
        }
        None => unknown("command", name, &super::parse::names()),
    }
}

/// What `help` with a command adds: something to type.
const EXAMPLES: [(&str, &str); 8] = [
    ("help", "`help run`: more about a command; `help hog`: about a program"),
    ("ps", "the numbers in its first column are for `stack 7` and `kill 7`"),
    ("top", "`run hog 60 &` first gives it something to show for a minute"),
    ("sched", "`sched -v` ends with a line for each G, M and P"),
    ("run", "`run fanout`; `run hog 60 &` and then `top`; `run hog share=300 60 &`: it gets 3/4"),
    ("gomaxprocs", "`gomaxprocs 1`, then `run fanout`: nothing is stolen"),
    ("stack", "`stack shell`: the calls that the shell waits in"),
    ("kill", "`run hog 60 &`, then `kill hog`"),
];

/// Reports an unknown name, and suggests the nearest one.
pub fn unknown(what: &str, name: &str, known: &[&str]) {
    match nearest(name, known) {
        Some(meant) => show!("no {what} `{name}`; did you mean `{meant}`?"),
        None => show!("no {what} `{name}`; there are: {}", known.join(" ")),
    }
}

fn ps() {
    show!("{}", row("G", "state", "CPU", "used/us", ["name", "started at", "waits for"]));
    let mut gs = tasks::gs();
    let all = gs.len();
    // If there are very many, the first and the last are enough.
    const MOST: usize = 200;
    if all > MOST {
        gs.drain(MOST / 2..all - MOST / 2);
    }
    for (place, g) in gs.iter().enumerate() {
        if all > MOST && place == MOST / 2 {
            show!("     \u{2026} {} more \u{2026}", all - MOST);
        }
        let holder = g.holder.map(|holder| format!(" of G {holder}")).unwrap_or_default();
        let wait = g.wait.map(wait_for).unwrap_or_default() + &holder + &rank(g) + &share(g);
        let cpu = g.cpu.map(|cpu| format!("{cpu}")).unwrap_or_else(|| "-".into());
        let site = g.site.map(|site| format!("{}:{}", in_crate(site.file()), site.line()));
        let site = site.unwrap_or_default();
        let name = if g.name.is_empty() { "-" } else { &*g.name };
        show!("{}", row(g.id, g.state, cpu, g.cpu_ns / 1000, [name, &site, &wait]));
    }
    show!("{all} Gs");
}

/// The priority of a G that is not normal.
fn rank(g: &tasks::GInfo) -> String {
    match (g.priority, g.rank) {
        (Priority::Normal, Priority::Normal) => String::new(),
        (own, rank) if own == rank => format!(" [{own}]"),
        (own, rank) => format!(" [{own}, runs as {rank}]"),
    }
}

/// The share of a G's program, if it is not that of most.
fn share(g: &tasks::GInfo) -> String {
    match g.share {
        None | Some(Share::DEFAULT) => String::new(),
        Some(share) => format!(" [share {share}]"),
    }
}

/// A row of `ps`. The last column is as wide as it must be.
fn row(
    g: impl Display,
    state: impl Display,
    cpu: impl Display,
    used: impl Display,
    [name, site, wait]: [&str; 3],
) -> String {
    let row = format!("{g:>6}  {state:9} {cpu:>3} {used:>9}  {name:8}  {site:18}  {wait}");
    row.trim_end().into()
}

/// A source file, without the path to its crate.
fn in_crate(file: &str) -> &str {
    file.rsplit_once("/src/").map_or(file, |(_, rest)| rest)
}

/// Why a G waits, and for what.
fn wait_for(wait: Wait) -> String {
    let limit = if wait.has_deadline { ", timed" } else { "" };
    match (wait.reason, wait.object) {
        // Its program has ended, and it called no function that could have ended it.
        (Reason::None, _) => "nothing: abandoned".into(),
        (reason, 0) => format!("{reason}{limit}"),
        (Reason::Join, g) => format!("join of G {g}{limit}"),
        (Reason::ProgramEnd, id) => format!("end of program {id}{limit}"),
        // The half of an address in which two differ.
        (reason, object) => format!("{reason} {:x}{limit}", object & 0xffff_ffff),
    }
}

/// Calls `f` with the number of the selected G, if there is one.
fn with_number(which: &Which, f: impl Fn(u64)) {
    let name = match which {
        Which::Number(number) => return f(*number),
        Which::Name(name) => name,
    };
    match tasks::gs().iter().find(|g| g.name == **name) {
        Some(g) => f(g.id),
        None => show!("no G is called `{name}`; `ps` shows what there is"),
    }
}

fn stack(g: u64) {
    match tasks::backtrace(g) {
        Ok(frames) => frames.iter().for_each(|frame| show!("  {frame}")),
        Err(error) => show!("G {g}: {error}; `ps` shows what there is"),
    }
}

fn kill(g: u64) {
    if super::is_own(g) {
        return show!("G {g} is this shell; `poweroff` ends the machine");
    }
    match tasks::kill(g) {
        Ok(Killed::Ended) => show!("G {g} has ended"),
        Ok(Killed::Pending) => show!("G {g} was told to end, and will when it next waits"),
        Ok(Killed::Computing) => show!(
            "G {g} computes and calls nobody: it cannot be ended alone, only with its program; \
             it ends if it ever waits"
        ),
        Err(error) => show!("G {g}: {error}; `ps` shows what there is"),
    }
}

fn nice(g: u64, priority: Priority) {
    match tasks::nice(g, priority) {
        true if system::running().promises.priorities => show!("G {g} is {priority} from now on"),
        true => show!("G {g} is {priority}; {} has no ranks", system::running().name),
        false => show!("no G of a program has the number {g}; `ps` shows what there is"),
    }
}

fn trace_start() {
    match trace::start() {
        Ok(()) => show!("events are written out from now on; `trace stop` ends that"),
        Err(error) => show!("{error}; `trace stop`, or boot by `make run`"),
    }
}

fn trace_stop() {
    match trace::stop() {
        true => show!("written out; on the host: cargo run -p trace -- convert target/trace.bin"),
        false => show!("no events are written out; `trace start` begins"),
    }
}

fn gomaxprocs_command(n: Option<usize>) {
    match n {
        None => show!("{} of {} Ps run Gs", gomaxprocs(), num_cpus()),
        Some(n) if n > num_cpus() => {
            show!("{n} is more than there are CPUs; at most {} Ps can run Gs", num_cpus())
        }
        Some(n) => {
            let before = set_gomaxprocs(n);
            show!("{} of {} Ps run Gs; {before} did before", gomaxprocs(), num_cpus());
        }
    }
}

fn bench_command(name: &str) {
    let Some(bench::Measured { operations, took }) = bench::run(name) else {
        return unknown("benchmark", name, &bench::NAMES);
    };
    let each = took.as_nanos() / u128::from(operations);
    show!("{name}: {operations} in {} us, {each} ns each", took.as_micros());
}

fn mem() {
    let memory = inspect::memory();
    let kib = |bytes: usize| bytes / 1024;
    let (frames, heap, stacks, pack) = (memory.frames, memory.heap, memory.stacks, memory.pack);
    let used = frames.total - frames.free;
    show!("frames  {} KiB in all, {} used, {} free", frames.total * 4, used * 4, frames.free * 4);
    show!(
        "heap    {} KiB taken, {} in use, {} of it in large blocks, {} requests refused",
        kib(heap.mapped),
        kib(heap.in_use),
        kib(heap.large_in_use),
        heap.failures
    );
    show!(
        "stacks  {} made, {} pages committed on touch, {} idle, {} given back, {} left behind",
        stacks.made,
        stacks.commits,
        stacks.idle_pages,
        stacks.trimmed_pages,
        stacks.left_pages
    );
    show!(
        "packed  {} stacks in {} KiB, {} packed and {} unpacked since boot",
        pack.packed,
        kib(pack.block_bytes),
        pack.packs,
        pack.unpacks
    );
    for class in heap.classes.iter().filter(|class| class.in_use > 0) {
        show!(
            "  {:5}-byte blocks: {:7} in use, {:9} ever",
            class.size,
            class.in_use,
            class.allocated
        );
    }
}

fn irq_command() {
    show!("vector  count       last CPU  device");
    for line in inspect::irqs() {
        show!("{:#6x}  {:<10}  {:<8}  {}", line.vector, line.count, line.cpu, line.name);
    }
    show!("CPU  timer       woke others  halts");
    for (cpu, did) in stats().cpus.iter().enumerate() {
        show!("{cpu:3}  {:<10}  {:<11}  {}", did.ticks, did.wakes, did.halts);
    }
}

fn dmesg(lines: Option<usize>) {
    let Ok(text) = console::dmesg() else { return show!("no memory for that") };
    let text = String::from_utf8_lossy(&text);
    let all: Vec<&str> = text.lines().collect();
    let skipped = lines.map_or(0, |lines| all.len().saturating_sub(lines));
    // As it was printed, whatever its width.
    all[skipped..].iter().for_each(|line| console::write(&format!("{line}\n")));
}

fn power_off() {
    show!("goodbye");
    match super::CODE.load(Relaxed) {
        0 => runnext::power_off(),
        code => exit(code),
    }
}
