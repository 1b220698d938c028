//! The heap: size-class caches per CPU in front of one list of holes.
