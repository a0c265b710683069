//! JSON (RFC 8259), checked once, never recursive, without an allocator.

pub mod check;
pub mod de;
pub mod decimal;
pub mod number;
pub mod raw;
pub mod ser;
pub mod view;
pub mod write;
