//! §5 Plan Schema (v1).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a session is to bring about.
///
/// ```
/// let plan = rigline_std::amplifier::Plan::parse(br#"{"goal":"measure 3V3","inputs":{"rail":"3V3"}}"#)?;
/// assert_eq!(plan.goal, "measure 3V3");
/// assert!(rigline_std::amplifier::Plan::parse(br#"{"goal":"x","inputs":[]}"#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The goal, in words.
    pub goal: String,
    /// What there is to begin with; none if absent.
    #[serde(default)]
    pub inputs: Map<String, Value>,
}

impl Plan {
    /// Reads a plan. Members that the schema does not name are left alone.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }
}
