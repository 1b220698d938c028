//! Printing: whole lines, to every console there is.
