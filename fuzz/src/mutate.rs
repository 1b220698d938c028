//! Spoils good bytes: flips, cuts, copies, lies about lengths.
//!
//! Knows no format. What a target knows comes in as seeds and words; what must be
//! right for the rest to be looked at, the target repairs afterwards.
#![forbid(unsafe_code)]

use trace::random::Random;

/// The most changes to one input.
const CHANGES: u64 = 8;
/// The longest piece that is cut, copied or made up.
const PIECE: u64 = 48;
/// One input in so many is noise from its first byte on.
const NOISE_ONE_IN: u64 = 24;

/// A good input with some of it spoilt, or noise; `most` bytes at the most.
pub fn spoilt(seeds: &[Vec<u8>], words: &[&[u8]], most: usize, random: &mut Random) -> Vec<u8> {
    let Some(seed) = pick(seeds, random) else { return noise(random, most as u64) };
    if random.below(NOISE_ONE_IN) == 0 {
        return noise(random, 4 * PIECE);
    }
    let mut bytes = seed.clone();
    // Sometimes none: what is good must stay so.
    for _ in 0..random.below(CHANGES) {
        change(&mut bytes, seeds, words, random);
    }
    bytes.truncate(most);
    bytes
}

/// One change, anywhere.
fn change(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&[u8]], random: &mut Random) {
    if bytes.is_empty() {
        return *bytes = noise(random, PIECE);
    }
    let at = random.below(bytes.len() as u64) as usize;
    let end = (at + 1 + random.below(PIECE) as usize).min(bytes.len());
    match random.below(13) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.any() as u8,
        2 => bytes[at] = random.below(16) as u8,
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at..end)),
        5 => insert(bytes, at, &noise(random, PIECE)),
        6 => overwrite(bytes, at, &number(random)),
        7 => nudge(bytes, at, random),
        // A piece comes again, at the end or instead of another.
        8 => bytes.extend_from_within(at..end),
        9 => {
            let piece = bytes[at..end].to_vec();
            let to = random.below(bytes.len() as u64) as usize;
            overwrite(bytes, to, &piece);
        }
        // It goes on as another one does.
        10 => {
            let other = pick(seeds, random).cloned().unwrap_or_default();
            let from = random.below(other.len() as u64 + 1) as usize;
            bytes.truncate(at);
            bytes.extend(&other[from..]);
        }
        11 => insert(bytes, at, pick(words, random).unwrap_or(&&b"\0"[..])),
        _ => overwrite(bytes, at, pick(words, random).unwrap_or(&&b"\xff"[..])),
    }
}

/// A number that lengths, counts and addresses break on, of 1, 2, 4 or 8 bytes,
/// in either order.
fn number(random: &mut Random) -> Vec<u8> {
    let near =
        |value: u64, random: &mut Random| value.wrapping_add(random.below(5)).wrapping_sub(2);
    let value = match random.below(4) {
        0 => near(1 << random.below(64), random),
        1 => near(u64::MAX >> random.below(64), random),
        2 => random.below(300),
        _ => near(!0xfff, random),
    };
    let bytes = 1usize << random.below(4);
    match random.below(4) {
        0 => value.to_be_bytes()[8 - bytes..].to_vec(),
        _ => value.to_le_bytes()[..bytes].to_vec(),
    }
}

/// Adds a little to a number of 1, 2 or 4 bytes, or takes it away.
fn nudge(bytes: &mut [u8], at: usize, random: &mut Random) {
    let width = (1usize << random.below(3)).min(bytes.len() - at);
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[at..at + width]);
    let sum = u64::from_le_bytes(word).wrapping_add(random.below(65)).wrapping_sub(32);
    bytes[at..at + width].copy_from_slice(&sum.to_le_bytes()[..width]);
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

/// Puts `piece` over what is at `at`, as far as there is something.
fn overwrite(bytes: &mut [u8], at: usize, piece: &[u8]) {
    let room = bytes.len().saturating_sub(at).min(piece.len());
    bytes[at..at + room].copy_from_slice(&piece[..room]);
}

fn noise(random: &mut Random, most: u64) -> Vec<u8> {
    (0..random.below(most + 1)).map(|_| random.any() as u8).collect()
}

fn pick<'a, T>(list: &'a [T], random: &mut Random) -> Option<&'a T> {
    list.get(random.below(list.len() as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_stay_good_most_do_not_and_none_is_too_long() {
        let seeds = [b"a good input".to_vec(), vec![7; 300]];
        let mut random = Random::new(1);
        let all: Vec<_> = (0..2000).map(|_| spoilt(&seeds, &[b"word"], 400, &mut random)).collect();
        let good = all.iter().filter(|bytes| seeds.contains(bytes)).count();
        assert!((100..800).contains(&good), "{good} of 2000 were left alone");
        assert!(all.iter().all(|bytes| bytes.len() <= 400));
        assert!(all.iter().any(|bytes| bytes.windows(4).any(|four| four == b"word")));
    }

    #[test]
    fn nothing_to_spoil_is_noise() {
        let mut random = Random::new(1);
        assert!((0..100).any(|_| !spoilt(&[], &[], 10, &mut random).is_empty()));
        let _ = (0..1000).map(|_| spoilt(&[vec![]], &[], 10, &mut random)).count();
    }
}
