//! Attributes of other crates beside ours, and lints.
#![deny(unused)]
use rigline::{Failure, Params};

/// Its words are not ours.
#[derive(Params, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Measure {
    /// The number of samples.
    #[param(minimum = 1)]
    #[serde(default)]
    pub sample_count: u8,
    #[allow(deprecated)]
    pub quiet: u8,
}

pub struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    /// Measures.
    #[operation]
    #[must_use]
    #[inline(never)]
    #[cfg_attr(all(), doc = "More.")]
    #[allow(clippy::unused_self)]
    pub fn measure(&self, args: Measure) -> Result<(), Failure> {
        let _ = args.sample_count;
        Ok(())
    }

    #[operation]
    #[allow(deprecated)]
    fn quiet(&self) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
