//! Promises of the screen, tested on pixels in a vector.

use super::*;

fn info(width: usize, height: usize, stride: usize, bytes: usize) -> FrameBufferInfo {
    FrameBufferInfo {
        byte_len: stride * height * bytes,
        width,
        height,
        pixel_format: PixelFormat::Bgr,
        bytes_per_pixel: bytes,
        stride,
    }
}

fn cells() -> Vec<Cell> {
    vec![Cell::BLANK; MAX_CELLS]
}

fn show(screen: &mut Screen, text: &[u8]) {
    screen.write(text, Color::Normal);
    screen.draw(usize::MAX);
}

/// The text of a row, as the grid says it has been drawn.
fn text(screen: &Screen, row: usize) -> String {
    let row = &screen.cells[row * screen.columns..][..screen.columns];
    let text: String =
        row.iter().map(|c| if c.drawn == BLANK { ' ' } else { char::from(c.drawn.byte) }).collect();
    text.trim_end().to_string()
}

#[test]
fn pixels_appear_in_their_cell_and_nowhere_else() {
    let info = info(70, 48, 80, 4);
    let mut pixels = vec![0xee; info.byte_len];
    let mut cells = cells();
    let mut screen = Screen::new(&mut pixels, info, &mut cells).expect("fits");
    assert_eq!(screen.size(), (10, 3));
    show(&mut screen, b"\n  X");
    let background = [BACKGROUND[2], BACKGROUND[1], BACKGROUND[0], 0];
    let mut lit = 0;
    for y in 0..48 {
        for x in 0..80 {
            let pixel: [u8; 4] = pixels[(y * 80 + x) * 4..][..4].try_into().expect("4 bytes");
            let in_cell = (2 * CELL_WIDTH..3 * CELL_WIDTH).contains(&x) && (16..32).contains(&y);
            match pixel {
                [0xee, ..] => assert!(x >= 70, "visible pixel left uncleared"),
                _ if x >= 70 => panic!("wrote into the padding of a line"),
                _ if pixel == background => {}
                _ => {
                    assert!(in_cell, "pixel at {x},{y}");
                    lit += 1;
                }
            }
        }
    }
    assert!(lit > 10, "an X has more than {lit} pixels");
}

#[test]
fn scrolling_keeps_the_last_lines() {
    let info = info(280, 64, 280, 3);
    let mut pixels = vec![0; info.byte_len];
    let mut cells = cells();
    let mut screen = Screen::new(&mut pixels, info, &mut cells).expect("fits");
    for i in 0..100 {
        show(&mut screen, format!("line {i}\n").as_bytes());
    }
    assert_eq!([0, 1, 2, 3].map(|row| text(&screen, row)), ["line 97", "line 98", "line 99", ""]);
}

#[test]
fn scrolled_pixels_equal_freshly_drawn_ones() {
    let info = info(280, 64, 280, 4);
    let (mut scrolled, mut fresh) = (vec![0; info.byte_len], vec![0; info.byte_len]);
    let mut grid = cells();
    let mut screen = Screen::new(&mut scrolled, info, &mut grid).expect("fits");
    show(&mut screen, b"gone\nWide line that goes away\n");
    show(&mut screen, b"a\nbb\nccc\n");
    let mut grid = cells();
    let mut screen = Screen::new(&mut fresh, info, &mut grid).expect("fits");
    show(&mut screen, b"a\nbb\nccc\n");
    assert!(scrolled == fresh);
}

#[test]
fn unchanged_cells_are_not_drawn_again() {
    let info = info(280, 64, 280, 4);
    let mut pixels = vec![0; info.byte_len];
    let mut cells = cells();
    let mut screen = Screen::new(&mut pixels, info, &mut cells).expect("fits");
    show(&mut screen, b"same\nsame\nsame\nsame");
    screen.pixels.fill(0x55);
    show(&mut screen, b"\nsame");
    assert!(pixels.iter().all(|&byte| byte == 0x55));
}

#[test]
fn tabs_returns_wrap_and_foreign_characters() {
    let info = info(20 * CELL_WIDTH, 6 * CELL_HEIGHT, 200, 4);
    let mut pixels = vec![0; info.byte_len];
    let mut cells = cells();
    let mut screen = Screen::new(&mut pixels, info, &mut cells).expect("fits");
    show(&mut screen, b"a\tb\nxxxx\ryy\n");
    show(&mut screen, "12345678901234567890\n".as_bytes());
    show(&mut screen, "é→😀\u{7}".as_bytes());
    show(&mut screen, b"\xff\x80.\n");
    show(&mut screen, b"1234567890123456789\t\t\tZ");
    let expected = [
        "a       b",
        "yyxx",
        "12345678901234567890",
        "\x7f\x7f\x7f\x7f\x7f\x7f.",
        "1234567890123456789",
        "Z",
    ];
    assert_eq!([0, 1, 2, 3, 4, 5].map(|row| text(&screen, row)), expected);
}

#[test]
fn colours_differ() {
    let info = info(280, 64, 280, 4);
    let mut pixels = vec![0; info.byte_len];
    let mut cells = cells();
    let mut screen = Screen::new(&mut pixels, info, &mut cells).expect("fits");
    let mut seen = [Color::Normal, Color::Warning, Color::Error].map(|color| {
        screen.write(b"\rX", color);
        screen.draw(usize::MAX);
        screen.pixels.to_vec()
    });
    seen.sort();
    assert!(seen[0] != seen[1] && seen[1] != seen[2]);
}

#[test]
fn formats_put_colours_where_they_belong() {
    let rgb = [0xff, 0x80, 0x08];
    let unknown = |red_position, green_position, blue_position| PixelFormat::Unknown {
        red_position,
        green_position,
        blue_position,
    };
    assert_eq!(encode(rgb, PixelFormat::Rgb, 4), 0x0008_80ff);
    assert_eq!(encode(rgb, PixelFormat::Bgr, 3), 0x00ff_8008);
    assert_eq!(encode(rgb, PixelFormat::U8, 1) & 0xff, (0xff * 3 + 0x80 * 6 + 8) / 10);
    assert_eq!(encode(rgb, unknown(11, 5, 0), 2), 31 << 11 | 32 << 5 | 1);
    assert_eq!(encode(rgb, unknown(16, 8, 0), 4), 0x00ff_8008);
    assert_eq!(encode(rgb, unknown(200, 255, 32), 4), 0);
}

#[test]
fn hostile_descriptions_are_safe() {
    let sizes = [0, 1, 6, 7, 16, 33, 640, 4096, 100_000, usize::MAX / 2, usize::MAX];
    let mut cells = cells();
    for len in [0, 1, 447, 448, 5000, 640 * 32 * 4] {
        let mut pixels = vec![0; len];
        for width in sizes {
            for height in sizes {
                for stride in sizes {
                    for bytes_per_pixel in [0, 1, 2, 3, 4, 5, usize::MAX] {
                        let info = FrameBufferInfo {
                            byte_len: usize::MAX,
                            width,
                            height,
                            stride,
                            bytes_per_pixel,
                            pixel_format: PixelFormat::Rgb,
                        };
                        if let Some(mut screen) = Screen::new(&mut pixels, info, &mut cells) {
                            show(&mut screen, b"a b\nc\td\n\n\xff");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn screen_larger_than_4k_is_used_in_part() {
    let info = info(8000, 100, 8000, 1);
    let mut pixels = vec![0; info.byte_len];
    let mut cells = cells();
    let screen = Screen::new(&mut pixels, info, &mut cells).expect("fits");
    assert_eq!(screen.size(), (MAX_COLUMNS, 6));
}
