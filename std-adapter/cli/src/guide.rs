//! The guide's chapters on the command and its web page.
//!
//! | chapter | contents |
//! |---|---|
//! | [`command`] | commands, arguments, exit codes, output |
//! | [`web_page`] | the web page |

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/command.md")]
pub mod command {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/web_page.md")]
pub mod web_page {}
