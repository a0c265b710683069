//! The guide's chapters on calling extensions. The chapters on writing one are in `rigline_std::guide`.
//!
//! | chapter | question |
//! |---|---|
//! | [`hosts`] | How does a program call extensions? |
//! | [`recording`] | How does a test run without the rig? |

#[doc = include_str!("guide/hosts.md")]
pub mod hosts {}
#[doc = include_str!("guide/recording.md")]
pub mod recording {}
