//! The guide's chapters on hardware tests.
//!
//! | chapter | contents |
//! |---|---|
//! | [`evals`] | steps, graders, measurements, verdicts |
//! | [`reports`] | JSON, JUnit, CTRF, TAP and HTML |

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/evals.md")]
pub mod evals {}

#[doc = include_str!("guide/links.md")]
#[doc = include_str!("guide/reports.md")]
pub mod reports {}
