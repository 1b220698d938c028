//! Skynet: a tree of Gs, ten children each, with leaves that are summed up.
//!
//! With size n there are 10^n leaves, numbered from 0, and a G for every leaf and every node
//! above. Each node waits for its children, so the whole tree may be alive at once. Argument:
//! n (4).

use runnext::prelude::*;

runnext::main!(skynet, main);

/// Children of a node.
const WIDTH: u64 = 10;
/// More leaves than this would not fit into any machine, nor their sum into 64 bits.
const MAX_SIZE: u32 = 8;

fn main() {
    let size = args().first().and_then(|word| word.parse().ok()).unwrap_or(4).min(MAX_SIZE);
    let leaves = WIDTH.pow(size);
    println!("skynet: {leaves} leaves on {} CPUs", num_cpus());
    match node(0, leaves) {
        Ok(sum) if sum == leaves * (leaves - 1) / 2 => println!("the sum is {sum}, as it must be"),
        Ok(sum) => {
            println!("the sum is {sum}, which is wrong");
            exit(1);
        }
        Err(error) => {
            println!("no sum: {error}");
            exit(2);
        }
    }
}

/// The sum of the `leaves` leaves from number `first` on.
fn node(first: u64, leaves: u64) -> Result<u64, String> {
    if leaves == 1 {
        return Ok(first);
    }
    let share = leaves / WIDTH;
    let children: Vec<_> =
        (0..WIDTH).map(|i| Go::new().spawn(move || node(first + i * share, share))).collect();
    // All children are joined, also after an error: no G is left behind.
    let sums: Vec<Result<u64, String>> = children
        .into_iter()
        .map(|child| {
            let child = child.map_err(|error| error.to_string())?;
            child.join().map_err(|error| error.to_string())?
        })
        .collect();
    sums.into_iter().sum()
}
