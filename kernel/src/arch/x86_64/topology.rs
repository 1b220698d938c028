//! Which CPUs share a core, a package, a NUMA node.
