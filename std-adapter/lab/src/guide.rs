//! The guide's chapter on sharing rigs.

#[doc = include_str!("guide/desk.md")]
pub mod desk {}
