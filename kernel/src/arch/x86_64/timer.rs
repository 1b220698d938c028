//! The timer of each CPU: one deadline, proved to fire.
