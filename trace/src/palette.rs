//! The colours of Gs: a G has one colour in all pictures of a trace.
//!
//! Sixteen hues of even lightness (in OKLCH), every second one a little darker,
//! so that dark text is readable on all of them and neighbours can be told apart.
//! [`paint`] gives Gs that run one after the other on a P different ones.
#![forbid(unsafe_code)]

use crate::model::Model;

/// On a light page.
pub const LIGHT: [&str; 16] = [
    "#f1938c", "#d28157", "#dea559", "#ab993b", "#99c070", "#57ad79", "#4dc9b1", "#05adb4",
    "#4dc1e5", "#559fda", "#8db0fb", "#918edc", "#c29eec", "#bc7fbf", "#e593c2", "#d3798f",
];
/// On a dark page.
pub const DARK: [&str; 16] = [
    "#e88f87", "#c2764e", "#d69f58", "#9e8c33", "#94b96d", "#4ea06e", "#4dc1ab", "#00a0a6",
    "#4cbadc", "#4d92ca", "#89a9f1", "#8582cc", "#bb99e3", "#ae74b1", "#dc8ebb", "#c46e83",
];
/// How many there are.
const COLOURS: usize = LIGHT.len();

/// The colour that a G has if it has no neighbours: numbers that follow each other get colours
/// that are far apart.
///
/// ```
/// use trace::palette::first_choice;
/// assert_ne!(first_choice(1), first_choice(2));
/// ```
pub fn first_choice(number: u32) -> usize {
    // Fibonacci hashing: the top four bits of a multiple of 2^32 / φ.
    (number.wrapping_mul(0x9e37_79b1) >> 28) as usize
}

/// Colours the Gs, those with most spans first: each takes the colour that it meets least often
/// beside itself, its first choice among equals.
pub(crate) fn paint(model: &mut Model) {
    let mut beside: Vec<(u32, u32)> = Vec::new();
    for cpu in &model.cpus {
        let pairs = cpu.spans.windows(2).map(|pair| (pair[0].g, pair[1].g));
        pairs.filter(|(a, b)| a != b).for_each(|(a, b)| beside.extend([(a, b), (b, a)]));
    }
    beside.sort_unstable();
    let of = |g: u32| {
        let from = beside.partition_point(|&(a, _)| a < g);
        let to = beside.partition_point(|&(a, _)| a <= g);
        &beside[from..to]
    };
    let mut order: Vec<u32> = (0..model.gs.len() as u32).collect();
    order.sort_by_key(|&g| std::cmp::Reverse(of(g).len()));
    let mut colours: Vec<Option<u8>> = vec![None; model.gs.len()];
    for g in order {
        let mut met = [0u32; COLOURS];
        for &(_, other) in of(g) {
            if let Some(colour) = colours[other as usize] {
                met[usize::from(colour)] += 1;
            }
        }
        let first = first_choice(model.gs[g as usize].number);
        // 7 has no common factor with 16: every colour comes once, neighbours late.
        let best = (0..COLOURS).map(|i| (first + 7 * i) % COLOURS).min_by_key(|&one| met[one]);
        colours[g as usize] = best.map(|best| best as u8);
    }
    for (g, colour) in model.gs.iter_mut().zip(colours) {
        g.colour = colour.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::decode;
    use crate::simulate::{Plan, stream};

    #[test]
    fn gs_side_by_side_have_different_colours() {
        let bytes = stream(Plan { cpus: 4, events: 20_000, seed: 3 });
        let model = Model::new(&decode(&bytes).expect("a stream"));
        let pairs = model.cpus.iter().flat_map(|cpu| cpu.spans.windows(2));
        let (mut all, mut alike) = (0, 0);
        for pair in pairs.filter(|pair| pair[0].g != pair[1].g) {
            all += 1;
            let colour = |i: usize| model.gs[pair[i].g as usize].colour;
            alike += u32::from(colour(0) == colour(1));
        }
        assert!(all > 1000 && alike * 200 < all, "{alike} of {all} pairs");
    }
}
