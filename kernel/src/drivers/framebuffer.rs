//! Text on the framebuffer.
