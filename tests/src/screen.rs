//! What the guest's screen shows: a screenshot, read for text.
//!
//! Of a machine without a serial port nothing else can be checked. QEMU writes PPM. Text is
//! recognised by drawing it with the kernel's own font and searching for those pixels
//! anywhere on the screen.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

const FONT: (FontWeight, RasterHeight) = (FontWeight::Regular, RasterHeight::Size16);

/// A picture, as brightness from 0 to 255 and as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Screen {
    /// Reads a binary PPM (P6, 8 bits a channel).
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        Self::parse(&bytes).with_context(|| path.display().to_string())
    }

    fn parse(bytes: &[u8]) -> Result<Self> {
        // "P6 width height 255", then one white space, then the pixels.
        let mut words = Vec::new();
        let mut at = 0;
        while words.len() < 4 {
            let rest = bytes.get(at..).unwrap_or_default();
            let start = rest.iter().position(|b| !b.is_ascii_whitespace()).context("no header")?;
            let end =
                rest[start..].iter().position(u8::is_ascii_whitespace).context("no pixels")?;
            words.push(std::str::from_utf8(&rest[start..start + end])?);
            at += start + end;
        }
        let (width, height): (usize, usize) = (words[1].parse()?, words[2].parse()?);
        let pixels = bytes.get(at + 1..).unwrap_or_default();
        let expected = width.checked_mul(height).and_then(|n| n.checked_mul(3));
        if words[0] != "P6" || words[3] != "255" || expected != Some(pixels.len()) {
            bail!("not a picture that QEMU would write");
        }
        Ok(Self { width, height, rgb: pixels.to_vec() })
    }

    /// How many pixels are not dark.
    pub fn lit_pixels(&self) -> usize {
        (0..self.width * self.height).filter(|&i| self.brightness(i) > 100).count()
    }

    /// Whether `text` is to be read somewhere, in the kernel's font.
    pub fn shows(&self, text: &str) -> bool {
        let Some(glyphs) = Drawn::of(text) else { return false };
        if glyphs.width > self.width || glyphs.height > self.height || glyphs.lit.is_empty() {
            return false;
        }
        (0..=self.height - glyphs.height)
            .any(|y| (0..=self.width - glyphs.width).any(|x| self.matches(&glyphs, x, y)))
    }

    fn matches(&self, glyphs: &Drawn, x: usize, y: usize) -> bool {
        let at = |&(dx, dy): &(usize, usize)| self.brightness((y + dy) * self.width + x + dx);
        glyphs.lit.iter().all(|p| at(p) > 100) && glyphs.dark.iter().all(|p| at(p) < 80)
    }

    fn brightness(&self, pixel: usize) -> u8 {
        self.rgb[pixel * 3..][..3].iter().copied().max().unwrap_or(0)
    }
}

/// A line of text as pixels that must be lit and pixels that must be dark.
/// Pixels in between, at the edges of strokes, count as neither.
struct Drawn {
    width: usize,
    height: usize,
    lit: Vec<(usize, usize)>,
    dark: Vec<(usize, usize)>,
}

impl Drawn {
    fn of(text: &str) -> Option<Self> {
        let cell = get_raster_width(FONT.0, FONT.1);
        let width = cell * text.chars().count();
        let mut drawn = Self { width, height: FONT.1.val(), lit: Vec::new(), dark: Vec::new() };
        for (column, letter) in text.chars().enumerate() {
            let glyph = get_raster(letter, FONT.0, FONT.1)?;
            for (y, row) in glyph.rows().enumerate() {
                for (x, &value) in row.iter().enumerate() {
                    let point = (column * cell + x, y);
                    match value {
                        200.. => drawn.lit.push(point),
                        ..=20 => drawn.dark.push(point),
                        _ => {}
                    }
                }
            }
        }
        Some(drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Black, with `text` in grey as a console draws it.
    fn screen_with(text: &str, x: usize, y: usize) -> Screen {
        let (width, height) = (320, 64);
        let mut rgb = vec![0; width * height * 3];
        let cell = get_raster_width(FONT.0, FONT.1);
        for (column, letter) in text.chars().enumerate() {
            let glyph = get_raster(letter, FONT.0, FONT.1).expect("a letter of the font");
            for (dy, row) in glyph.rows().enumerate() {
                for (dx, &value) in row.iter().enumerate() {
                    let pixel = (y + dy) * width + x + column * cell + dx;
                    rgb[pixel * 3..][..3].fill((u32::from(value) * 200 / 255) as u8);
                }
            }
        }
        Screen { width, height, rgb }
    }

    #[test]
    fn text_is_read_where_it_is() {
        let screen = screen_with("8 CPUs online", 13, 21);
        assert!(screen.shows("8 CPUs online"));
        assert!(screen.shows("CPUs"));
        assert!(!screen.shows("6 CPUs online"));
        assert!(!screen.shows("8 CPUs offline"));
    }

    #[test]
    fn an_empty_screen_shows_nothing() {
        let screen = screen_with("", 0, 0);
        assert_eq!(screen.lit_pixels(), 0);
        assert!(!screen.shows("a"));
        let white = Screen { rgb: vec![255; screen.rgb.len()], ..screen };
        assert!(!white.shows("a"), "a white screen is not full of text");
    }

    #[test]
    fn only_whole_pictures_are_read() {
        let picture = Screen::parse(b"P6\n2 1\n255\n\x01\x02\x03\x0a\x0b\x0c").expect("a picture");
        assert_eq!((picture.width, picture.height, picture.rgb.len()), (2, 1, 6));
        for broken in [&b""[..], b"P6", b"P6\n2 1\n255\n\x01", b"P5\n1 1\n255\n\x01\x02\x03"] {
            assert!(Screen::parse(broken).is_err());
        }
    }
}
