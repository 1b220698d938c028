//! Everything at once, for as long as one likes, and a ledger at the end.
//!
//! The guest (`tests/guest/src/soak.rs`) goes through round after round and says
//! what is left of them. `make soak` (`src/bin/soak.rs`) has it do so for a long
//! time; `tests/machine/soak.rs` for a short one.

use boot::data::{self, DataDisk};

use crate::guest::Boot;

/// On so many CPUs, with a disk; `until`: rounds (`"12"`) or seconds (`"900s"`).
///
/// ```no_run
/// tests::soak::boot(8, "900s").limit(1800).run().assert_ok();
/// ```
pub fn boot(cpus: usize, until: &str) -> Boot {
    let image = data::build(&boot::target_dir()).expect("a disk image");
    Boot::guest(format!("soak-{cpus}"))
        .smp(cpus)
        .mem("2G")
        .data(DataDisk::new(image))
        .cmdline(&format!("program=soak log=error -- {until} disk"))
}
