//! The colours of Gs: the same G has the same colour in every picture.
//!
//! Sixteen hues of even lightness (in OKLCH), every second one a little darker,
//! so that dark text is readable on all of them and neighbours can be told apart.
//! Numbers that follow each other get colours that are far apart.
#![forbid(unsafe_code)]

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

/// Which of the sixteen a G has. The page's script computes the same.
///
/// ```
/// use trace::palette::colour;
/// assert_ne!(colour(1), colour(2));
/// ```
pub fn colour(number: u32) -> usize {
    // Fibonacci hashing: the top four bits of a multiple of 2^32 / φ.
    (number.wrapping_mul(0x9e37_79b1) >> 28) as usize
}
