//! The guide's chapters on reaching extensions. The chapters on writing one are in
//! `rigline_std::guide`.
//!
//! | chapter | contents |
//! |---|---|
//! | [`targets`] | where an extension is, and how it is asked |
//! | [`hosts`] | calling extensions from a program |
//! | [`install`] | gevals, Amplifier and namel3ss |
//! | [`agents`] | MCP, and what an agent can do to a board |
//! | [`servers`] | serving many clients, and who may ask |
//! | [`protocols`] | how protocols differ |
//! | [`testing`] | testing an extension |
//! | [`recording`] | tests without the rig |
//! | [`limits`] | sizes, numbers and times |

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/targets.md")]
pub mod targets {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/hosts.md")]
pub mod hosts {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/install.md")]
pub mod install {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/agents.md")]
pub mod agents {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/servers.md")]
pub mod servers {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/protocols.md")]
pub mod protocols {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/recording.md")]
pub mod recording {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/limits.md")]
pub mod limits {}
