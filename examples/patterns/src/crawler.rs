//! A crawler: workers fetch pages and find links; the first error cancels all of them.
//!
//! The workers are an `ErrGroup` with its context: each of their waits ends when it is over. Main
//! counts the pages that are under way, and closes the list of jobs when there are none.

use runnext::prelude::*;
use runnext::sync::ErrGroup;

runnext::main!(crawler, main);

const WORKERS: usize = 4;
const PAGES: u32 = 60;

fn main() {
    println!("without a broken page: {:?}", crawl(None));
    println!("with one: {:?}", crawl(Some(17)));
}

/// How many pages can be reached from page 0, or why that is not known.
fn crawl(broken: Option<u32>) -> Result<usize, String> {
    let mut group: ErrGroup<String> = ErrGroup::new(&Context::new());
    let (jobs, todo) = chan::unbounded();
    let (tell, found) = chan::bounded(WORKERS);
    for _ in 0..WORKERS {
        let (todo, tell) = (todo.clone(), tell.clone());
        group.go(move |context| {
            while let Ok(page) = todo.recv_until(context) {
                let links = fetch(page, broken)?;
                if tell.send_until(links, context).is_err() {
                    break; // cancelled
                }
            }
            Ok(())
        });
    }
    drop((todo, tell));
    let mut seen = HashSet::from([0]);
    let mut under_way = jobs.send(0).map_or(0, |()| 1);
    while under_way > 0 {
        // All workers are gone after an error: nothing comes any more.
        let Ok(links) = found.recv() else { break };
        under_way -= 1;
        for link in links {
            if seen.insert(link) && jobs.send(link).is_ok() {
                under_way += 1;
            }
        }
    }
    drop(jobs);
    group.wait().map(|()| seen.len()).map_err(|error| error.to_string())
}

/// A page of a small web takes a while, and has links to two others.
fn fetch(page: u32, broken: Option<u32>) -> Result<[u32; 2], String> {
    sleep(Duration::from_millis(1));
    match broken == Some(page) {
        true => Err(format!("page {page} is broken")),
        false => Ok([(page * 2 + 1) % PAGES, (page + 7) % PAGES]),
    }
}
