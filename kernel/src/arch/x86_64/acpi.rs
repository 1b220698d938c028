//! What the firmware says: CPUs, interrupt routing, timers, memory affinity.
