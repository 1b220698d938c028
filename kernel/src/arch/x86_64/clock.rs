//! A monotonic clock in nanoseconds, in step across CPUs.
