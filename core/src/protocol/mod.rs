//! The protocols: one file each, the only place that knows its member names and codes.

pub mod gevals;
