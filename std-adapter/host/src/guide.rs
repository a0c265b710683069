//! The guide's chapters on calling extensions. The chapters on writing one are in `rigline_std::guide`.
//!
//! | chapter | question |
//! |---|---|
//! | [`hosts`] | How does a program call extensions? |
//! | [`testing`] | How is an extension tested, and where is its state between calls? |
//! | [`agents`] | What can an agent do to a board, and how does its owner limit that? |
//! | [`recording`] | How does a test run without the rig? |

#[doc = include_str!("guide/hosts.md")]
pub mod hosts {}
#[doc = include_str!("guide/testing.md")]
pub mod testing {}
#[doc = include_str!("guide/agents.md")]
pub mod agents {}
#[doc = include_str!("guide/recording.md")]
pub mod recording {}
