//! Placeholder.
/// Placeholder.
pub fn blocking<T>(f: impl FnOnce() -> T) -> T {
    f()
}
