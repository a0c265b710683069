//! Plans: section 5, "Plan Schema (v1)", of Amplifier's protocol text.

use rigline::json::{Json, JsonKind};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A plan: the goal of a session, and the inputs for it.
///
/// ```
/// let plan = rigline_host::amplifier::Plan::parse(br#"{"goal":"measure 3V3","inputs":{"rail":"3V3"}}"#)?;
/// assert_eq!(plan.goal, "measure 3V3");
/// assert!(rigline_host::amplifier::Plan::parse(br#"{"goal":"x","inputs":[]}"#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The goal, in words.
    pub goal: String,
    /// The inputs, by their names. Empty if the plan has none.
    #[serde(default)]
    pub inputs: Map<String, Value>,
}

impl Plan {
    /// Reads a plan from JSON text. Members that the schema does not name are ignored.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(text)
    }
}

/// The violations of the schema in a plan, each with its place (`.goal`) before it. The text says of no member that it is required; a
/// plan without a goal is none.
pub(super) fn faults(plan: Json<'_>) -> Vec<String> {
    if plan.kind() != JsonKind::Object {
        return vec![": expected an object".to_owned()];
    }
    let mut faults = Vec::new();
    match plan.get("goal").map(|goal| goal.kind()) {
        Some(JsonKind::String) => {}
        Some(_) => faults.push(".goal: expected a string".to_owned()),
        None => faults.push(".goal: required, but missing".to_owned()),
    }
    if plan.get("inputs").is_some_and(|inputs| inputs.kind() != JsonKind::Object) {
        faults.push(".inputs: expected an object".to_owned());
    }
    faults
}
