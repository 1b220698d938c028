//! Page tables: W^X, no page 0, and maps made on demand.
