//! Logs from extensions: gevals "Log".

use super::reply::{Plain, member};
use crate::json::view::{Json, Kind};
use crate::level::Level;

/// A log line: gevals "Log".
#[derive(Debug, Clone, Copy)]
pub struct Log<'t> {
    params: Json<'t>,
}

impl<'t> Log<'t> {
    /// Reads the notification's `params`.
    pub fn of_params(params: Json<'t>) -> Self {
        Self { params }
    }

    /// The level; words that other loggers use count as the nearest, and what is unknown or missing as `info`.
    pub fn level(&self) -> Level {
        let Some(name) = self.level_name().and_then(|name| name.0.text()) else { return Level::Info };
        let is = |known: &str| name.chars().map(|char| char.to_ascii_lowercase()).eq(known.chars());
        LEVELS.iter().find(|(known, _)| is(known)).map_or(Level::Info, |(_, level)| *level)
    }

    /// The level as the peer said it.
    pub fn level_name(&self) -> Option<Plain<'t>> {
        member(self.params, "level").map(Plain)
    }

    /// The message. Params other than an object are themselves the message.
    pub fn message(&self) -> Plain<'t> {
        match self.params.kind() {
            Kind::Object => Plain(member(self.params, "message").unwrap_or(Json::NULL)),
            _ => Plain(self.params),
        }
    }

    /// The data, whatever it is.
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
