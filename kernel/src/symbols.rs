//! Names for addresses, from the kernel's own ELF file.
