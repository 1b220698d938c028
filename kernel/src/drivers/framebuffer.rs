//! Text on the framebuffer that the loader set up.
//!
//! The loader's description of the screen is not trusted: whatever it says, no pixel is drawn
//! outside the buffer. `log.rs` decides what is printed.
//!
//! The framebuffer is never read: reads over the bus are slower than anything else a kernel
//! does. So the grid is kept twice, once as it should look and once as it was last drawn, and
//! only cells that differ are drawn. Scrolling moves the first and lets the comparison find
//! the few cells that changed.

use super::log::{Color, Sink};
use bootloader_api::info::{FrameBufferInfo, PixelFormat};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

/// A full screen scrolls by this part of its rows: to draw it costs the same for any number.
const JUMP: usize = 8;

const CELL_WIDTH: usize = get_raster_width(FontWeight::Regular, RasterHeight::Size16);
const CELL_HEIGHT: usize = RasterHeight::Size16.val();

/// The largest grid: a 4K screen. A larger screen is used in part.
const MAX_COLUMNS: usize = 3840usize.div_ceil(CELL_WIDTH);
const MAX_ROWS: usize = 2160usize.div_ceil(CELL_HEIGHT);

pub const MAX_CELLS: usize = MAX_COLUMNS * MAX_ROWS;

const TAB: usize = 8;

/// Bytes of the screen that are cleared at a time: whole pixels of 1, 2, 3 or 4 bytes.
const CLEAR_BYTES: usize = 12 * 64;

/// The grid's code for a character that the font does not have.
const REPLACEMENT: u8 = 0x7f;

/// Near black, and the foreground colours in the order of [`Color`].
const BACKGROUND: [u8; 3] = [16, 16, 20];
const FOREGROUNDS: [[u8; 3]; 3] = [[204, 204, 204], [240, 200, 80], [255, 96, 80]];

/// Steps between background and foreground at the edges of a glyph.
const SHADES: usize = 16;

/// One cell of the grid: the glyph it should show, and the glyph it shows.
#[derive(Clone, Copy)]
pub struct Cell {
    wanted: Glyph,
    drawn: Glyph,
}

/// A character with its colour. A blank is all zero: a fresh grid takes no space in the image.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Glyph {
    byte: u8,
    color: u8,
}

const BLANK: Glyph = Glyph { byte: 0, color: 0 };

impl Cell {
    pub const BLANK: Cell = Cell { wanted: BLANK, drawn: BLANK };
}

pub struct Screen<'a> {
    pixels: &'a mut [u8],
    cells: &'a mut [Cell],
    columns: usize,
    rows: usize,
    bytes_per_pixel: usize,
    bytes_per_line: usize,
    /// Ready-made pixels for each colour and shade, least significant byte first.
    shades: [[u32; SHADES]; FOREGROUNDS.len()],
    /// Position of the next character; `column == columns` until a character needs the wrap.
    column: usize,
    row: usize,
    color: u8,
    /// Continuation bytes that still belong to a character already shown.
    utf8_left: u8,
    /// The rows that may differ from the drawn ones: `dirty.0 .. dirty.1`.
    dirty: (usize, usize),
}

impl Screen<'static> {
    /// The machine's screen, on the one static grid; `None` also when it was taken before.
    pub fn take(pixels: &'static mut [u8], info: FrameBufferInfo) -> Option<Self> {
        static CELLS: spin::Mutex<[Cell; MAX_CELLS]> = spin::Mutex::new([Cell::BLANK; MAX_CELLS]);
        let cells = spin::MutexGuard::leak(CELLS.try_lock()?); // locked for ever
        Screen::new(pixels, info, cells)
    }
}

impl<'a> Screen<'a> {
    /// A cleared screen on `pixels`, which is laid out as `info` says. Where `info` claims more
    /// than `pixels` or `cells` have, less is used; `None` where not even one character fits.
    pub fn new(pixels: &'a mut [u8], info: FrameBufferInfo, cells: &'a mut [Cell]) -> Option<Self> {
        let bytes_per_pixel = info.bytes_per_pixel;
        if !(1..=4).contains(&bytes_per_pixel) {
            return None;
        }
        // Lines that overlap cannot be drawn on: the stride limits the width.
        let width = info.width.min(info.stride);
        let bytes_per_line = info.stride.checked_mul(bytes_per_pixel)?;
        let columns = (width / CELL_WIDTH).min(MAX_COLUMNS);
        // The last line needs its pixels only, not its padding.
        let last_line = columns * CELL_WIDTH * bytes_per_pixel;
        let lines = match pixels.len().checked_sub(last_line) {
            Some(room) if columns > 0 => room / bytes_per_line + 1,
            _ => return None,
        };
        let rows = (lines.min(info.height) / CELL_HEIGHT).min(cells.len() / columns);
        if rows == 0 {
            return None;
        }
        let shades = FOREGROUNDS.map(|foreground| {
            core::array::from_fn(|shade| {
                encode(mix(foreground, shade), info.pixel_format, bytes_per_pixel)
            })
        });
        let cells = &mut cells[..columns * rows];
        cells.fill(Cell::BLANK);
        // The loader leaves its own messages on the screen. Cleared by long copies: a copy for each
        // pixel took 31 M instructions, a third of the boot.
        let mut clear = [0; CLEAR_BYTES];
        let background = shades[0][0].to_le_bytes();
        for place in clear.chunks_exact_mut(bytes_per_pixel) {
            place.copy_from_slice(&background[..bytes_per_pixel]);
        }
        for line in pixels.chunks_mut(bytes_per_line).take(lines.min(info.height)) {
            let visible = (width * bytes_per_pixel).min(line.len());
            for part in line[..visible].chunks_mut(CLEAR_BYTES) {
                part.copy_from_slice(&clear[..part.len()]);
            }
        }
        Some(Screen {
            pixels,
            cells,
            columns,
            rows,
            bytes_per_pixel,
            bytes_per_line,
            shades,
            column: 0,
            row: 0,
            color: 0,
            utf8_left: 0,
            dirty: (rows, 0),
        })
    }

    pub fn size(&self) -> (usize, usize) {
        (self.columns, self.rows)
    }

    /// Puts one byte of text. A character outside ASCII takes one cell, as does a byte of none.
    fn put(&mut self, byte: u8) {
        if (0x80..0xc0).contains(&byte) && self.utf8_left > 0 {
            self.utf8_left -= 1;
            return;
        }
        self.utf8_left = match byte {
            0xc0..0xe0 => 1,
            0xe0..0xf0 => 2,
            0xf0..0xf8 => 3,
            _ => 0,
        };
        match byte {
            b'\n' => self.line_feed(),
            b'\r' => self.column = 0,
            b'\t' => self.column = ((self.column / TAB + 1) * TAB).min(self.columns),
            0x08 => self.column = self.column.saturating_sub(1),
            b' '..0x7f => self.place(byte),
            _ => self.place(REPLACEMENT),
        }
    }

    fn place(&mut self, byte: u8) {
        if self.column == self.columns {
            self.line_feed();
        }
        // A space has no colour, so that it equals a blank cell.
        let wanted = match byte {
            b' ' => BLANK,
            _ => Glyph { byte, color: self.color },
        };
        self.cells[self.row * self.columns + self.column].wanted = wanted;
        self.dirty = (self.dirty.0.min(self.row), self.dirty.1.max(self.row + 1));
        self.column += 1;
    }

    fn line_feed(&mut self) {
        self.column = 0;
        self.row += 1;
        if self.row < self.rows {
            return;
        }
        let jump = (self.rows / JUMP).max(1);
        self.row -= jump;
        let by = jump * self.columns;
        for place in 0..self.cells.len() {
            self.cells[place].wanted = self.cells.get(place + by).map_or(BLANK, |c| c.wanted);
        }
        self.dirty = (0, self.rows);
    }

    fn draw_cell(&mut self, row: usize, column: usize, glyph: Glyph) {
        let shades = self.shades[usize::from(glyph.color) % FOREGROUNDS.len()];
        let raster = get_raster(char::from(glyph.byte), FontWeight::Regular, RasterHeight::Size16);
        let per_pixel = self.bytes_per_pixel;
        let start = row * CELL_HEIGHT * self.bytes_per_line + column * CELL_WIDTH * per_pixel;
        for y in 0..CELL_HEIGHT {
            // A line of the cell is assembled first: one copy to the bus.
            let mut line = [0; CELL_WIDTH * 4];
            for (x, place) in line.chunks_exact_mut(per_pixel).take(CELL_WIDTH).enumerate() {
                // Without a font: nothing for a blank, a box for the rest.
                let is_box = (1..CELL_WIDTH - 1).contains(&x) && (3..CELL_HEIGHT - 3).contains(&y);
                let intensity = match raster {
                    Some(raster) => raster.pixel(x, y).unwrap_or(0),
                    None if glyph != BLANK && is_box => 255,
                    None => 0,
                };
                let pixel = shades[usize::from(intensity) * SHADES / 256].to_le_bytes();
                place.copy_from_slice(&pixel[..per_pixel]);
            }
            let line = &line[..CELL_WIDTH * per_pixel];
            let at = start + y * self.bytes_per_line;
            // `new` checked that it fits; a mistake there must not panic in a panic message.
            if let Some(place) = self.pixels.get_mut(at..at + line.len()) {
                place.copy_from_slice(line);
            }
        }
    }
}

impl Sink for Screen<'_> {
    fn write(&mut self, bytes: &[u8], color: Color) {
        self.color = color as u8;
        bytes.iter().for_each(|&byte| self.put(byte));
    }

    /// Draws cells whose drawn glyph is not the wanted one.
    fn draw(&mut self, most: usize) -> bool {
        let mut drawn = 0;
        for row in self.dirty.0..self.dirty.1 {
            for column in 0..self.columns {
                let cell = &mut self.cells[row * self.columns + column];
                if cell.drawn == cell.wanted {
                    continue;
                }
                if drawn == most {
                    self.dirty.0 = row;
                    return true;
                }
                cell.drawn = cell.wanted;
                let glyph = cell.wanted;
                self.draw_cell(row, column, glyph);
                drawn += 1;
            }
        }
        self.dirty = (self.rows, 0);
        false
    }
}

/// The colour `shade` steps of [`SHADES`] away from the background.
fn mix(foreground: [u8; 3], shade: usize) -> [u8; 3] {
    core::array::from_fn(|i| {
        let (from, to) = (usize::from(BACKGROUND[i]), usize::from(foreground[i]));
        ((from * (SHADES - 1 - shade) + to * shade) / (SHADES - 1)) as u8
    })
}

fn encode([red, green, blue]: [u8; 3], format: PixelFormat, bytes_per_pixel: usize) -> u32 {
    let [r, g, b] = [red, green, blue].map(u32::from);
    let grey = (r * 3 + g * 6 + b) / 10;
    match format {
        PixelFormat::Rgb if bytes_per_pixel >= 3 => r | g << 8 | b << 16,
        PixelFormat::Bgr if bytes_per_pixel >= 3 => b | g << 8 | r << 16,
        PixelFormat::Unknown { red_position, green_position, blue_position } => {
            let starts = [red_position, green_position, blue_position];
            let channel = |(value, start): (u32, u8)| {
                // The loader tells only where a channel begins: it ends where the next begins, or
                // with the pixel. It shows the upper bits of its value, as many as fit.
                let next = starts.into_iter().filter(|&other| other > start).min().unwrap_or(255);
                let end = next.min(bytes_per_pixel as u8 * 8);
                let bits = u32::from(end.saturating_sub(start)).min(8);
                if bits == 0 { 0 } else { (value >> (8 - bits)) << start }
            };
            [r, g, b].into_iter().zip(starts).map(channel).fold(0, |pixel, bits| pixel | bits)
        }
        // One grey byte; also the best guess for colours that do not fit.
        _ => grey * 0x0101_0101,
    }
}

#[cfg(test)]
mod tests;
