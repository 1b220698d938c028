//! How an image starts.
