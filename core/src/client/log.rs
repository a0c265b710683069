//! Logs that an extension sends to its host (gevals "Log").

use super::reply::{Unquoted, member};
use crate::json::{Json, JsonKind};
use crate::level::Level;

/// A log that an extension has sent (gevals "Log").
#[derive(Debug, Clone, Copy)]
pub struct Log<'t> {
    params: Json<'t>,
}

impl<'t> Log<'t> {
    /// Reads the `params` of a log notification.
    pub fn of_params(params: Json<'t>) -> Self {
        Self { params }
    }

    /// The level of the log. Words of other loggers count as the nearest level, such as `fatal` as
    /// error. An unknown or missing level counts as info.
    pub fn level(&self) -> Level {
        let Some(name) = self.level_name().and_then(|name| name.0.text()) else { return Level::Info };
        let is = |known: &str| name.chars().map(|char| char.to_ascii_lowercase()).eq(known.chars());
        LEVELS.iter().find(|(known, _)| is(known)).map_or(Level::Info, |(_, level)| *level)
    }

    /// The level as the extension has written it; none if it is missing.
    pub fn level_name(&self) -> Option<Unquoted<'t>> {
        member(self.params, "level").map(Unquoted)
    }

    /// The message of the log. Params that are not an object are the message themselves.
    pub fn message(&self) -> Unquoted<'t> {
        match self.params.kind() {
            JsonKind::Object => Unquoted(member(self.params, "message").unwrap_or(Json::NULL)),
            _ => Unquoted(self.params),
        }
    }

    /// The data of the log, of any JSON type; none if there is none.
    pub fn data(&self) -> Option<Json<'t>> {
        member(self.params, "data")
    }
}

/// Levels by name.
const LEVELS: [(&str, Level); 11] = [
    ("debug", Level::Debug),
    ("trace", Level::Debug),
    ("verbose", Level::Debug),
    ("info", Level::Info),
    ("warn", Level::Warn),
    ("warning", Level::Warn),
    ("error", Level::Error),
    ("err", Level::Error),
    ("fatal", Level::Error),
    ("critical", Level::Error),
    ("panic", Level::Error),
];
