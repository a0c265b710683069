//! The commands for Amplifier: `descriptor` and `events`.

pub(super) mod descriptor;
pub(super) mod events;

pub(super) const STARTER_FILES: &[(&str, &str)] = &[("hosts/module.json", include_str!("../../new/module.json.in"))];
