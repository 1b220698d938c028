//! Physical memory, a page at a time.
