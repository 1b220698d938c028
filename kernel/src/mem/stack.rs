//! Stacks of Gs: reserved as addresses, committed on first touch.
