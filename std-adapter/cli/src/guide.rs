//! The guide's chapters on the command and its web page.
//!
//! | chapter | contents |
//! |---|---|
//! | [`command`] | commands, arguments, exit codes, output |
//! | [`web_page`] | the web page |
//! | [`first_bench`] | a rig and a board under test: wiring, console, eval, pytest, agent, page |

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/command.md")]
pub mod command {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/web_page.md")]
pub mod web_page {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/first_bench.md")]
pub mod first_bench {}
