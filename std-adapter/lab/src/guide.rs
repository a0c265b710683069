//! The guide's chapters on sharing rigs.

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/desk.md")]
pub mod desk {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/hosts.md")]
pub mod hosts {}
