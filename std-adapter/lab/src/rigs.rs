//! The rigs of this host: `rigs.toml`, and the selectors that name them.
//!
//! ```toml
//! [[rig]]
//! name = "pico1"
//! target = "serial:auto/E6614C311B7F8B2F"
//! tags = { board = "pico" }
//! # One at a time of those that have it.
//! shares = ["psu1"]
//! # Whether it is asked for its manifest between two users; true if unsaid.
//! check = true
//! # What brings it back when it does not answer: a program with its arguments.
//! recover = ["uhubctl", "-l", "1-1", "-p", "2", "-a", "cycle"]
//! # The longest time of a lease; no limit if unsaid.
//! longest = "2h"
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use rigline_host::files;
use rigline_host::ports::Roots;
use rigline_host::target::Target;
use serde::Deserialize;

/// The most rigs of one list.
const MOST: usize = 1000;
/// The most bytes of a list.
pub(crate) const LONGEST: u64 = 4 << 20;

/// A rig in the list `rigs.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The name of the rig.
    pub name: String,
    /// The target of the rig.
    pub target: String,
    /// The tags of the rig, such as `board = "pico"`. Selectors `rig:KEY=VALUE` use them.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// The parts that the rig shares with others. Of the rigs that share a part, only one can be
    /// used at a time.
    #[serde(default)]
    pub shares: Vec<String>,
    /// Whether the rig is asked for its manifest between two holders.
    #[serde(default = "yes")]
    pub check: bool,
    /// The program that recovers the rig when it does not answer, with its arguments; empty if
    /// there is none. It must not affect other rigs.
    #[serde(default)]
    pub recover: Vec<String>,
    /// The longest time of a lease, such as `2h` or `90m`.
    #[serde(default)]
    pub longest: Option<String>,
    /// The names of the board itself, by which two targets are recognised as one board.
    #[serde(skip)]
    pub boards: Vec<String>,
}

fn yes() -> bool {
    true
}

impl Spec {
    /// A rig that is in no list. Its name is its target.
    pub fn unlisted(target: &str) -> Self {
        Self {
            name: target.to_owned(),
            target: target.to_owned(),
            tags: BTreeMap::new(),
            shares: Vec::new(),
            check: true,
            recover: Vec::new(),
            longest: None,
            boards: Vec::new(),
        }
    }

    /// The parts that only one user at a time can have: the shared parts, and the board itself.
    pub fn parts(&self) -> impl Iterator<Item = &String> {
        self.shares.iter().chain(&self.boards)
    }

    /// The longest time of a lease, in milliseconds; `u64::MAX` if there is no limit.
    pub fn longest(&self) -> u64 {
        let longest = self.longest.as_deref().and_then(|text| duration(text).ok());
        longest.map_or(u64::MAX, crate::clock::to_millis)
    }

    /// Finds the names of the board, and stores them in `boards`. This may wait until a host name
    /// is resolved.
    pub fn find_board(&mut self, roots: &Roots) {
        if let Ok(target) = self.target.parse() {
            self.boards = rigline_host::rig_names(&target, roots);
        }
    }
}

/// Reads the list of rigs. A file that does not exist is an empty list.
///
/// # Errors
/// The file cannot be read, or is wrong. The error names the file and the place in it.
pub fn read(path: &Path) -> io::Result<Vec<Spec>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct List {
        #[serde(default)]
        rig: Vec<Spec>,
    }
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {text}", path.display()));
    let text = match files::read_text(path, LONGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?,
    };
    let List { rig: rigs } = toml::from_str(&text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
    if rigs.len() > MOST {
        return Err(wrong(format!("{} rigs, and there may be {MOST}", rigs.len())));
    }
    let mut names = std::collections::BTreeSet::new();
    for rig in &rigs {
        if !is_name(&rig.name) {
            return Err(wrong(format!("the rig's name `{}` is not letters, digits, `.`, `_` and `-`", rig.name)));
        }
        if !names.insert(&rig.name) {
            return Err(wrong(format!("two rigs have the name {}", rig.name)));
        }
        let target = rig.target.parse::<Target>().map_err(|error| wrong(format!("rig {}: {error}", rig.name)))?;
        if matches!(target, Target::Rig(_)) {
            return Err(wrong(format!("rig {}: its target is {target}, and not where it is", rig.name)));
        }
        if let Some(Err(why)) = rig.longest.as_deref().map(duration) {
            let longest = rig.longest.as_deref().unwrap_or_default();
            return Err(wrong(format!("rig {}: longest = \"{longest}\": {why}; use a duration such as 2h", rig.name)));
        }
        for (key, value) in &rig.tags {
            if !is_name(key) || value.contains(',') {
                return Err(wrong(format!("rig {}: the tag {key}={value} cannot be written in a selector", rig.name)));
            }
        }
    }
    Ok(rigs)
}

fn duration(text: &str) -> Result<Duration, String> {
    let found = rigline::GoDuration::parse(text).map_err(|error| error.to_string())?;
    match Duration::try_from(found) {
        Ok(found) if !found.is_zero() => Ok(found),
        Ok(_) => Err("must be more than 0s".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 100
        && text.chars().all(|char| char.is_ascii_alphanumeric() || "._-".contains(char))
}

/// A `TARGET` of a command: rigs of the list, or any other target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// The rig of this name: `rig:NAME`.
    Name(String),
    /// Rigs with all these tags: `rig:KEY=VALUE`.
    Tags(Vec<(String, String)>),
    /// The rig with this target, which need not be in the list.
    Target(String),
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(rig) = text.strip_prefix("rig:") else {
            let target: Target = text.parse().map_err(|error: rigline_host::target::TargetError| error.to_string())?;
            return match &target {
                Target::Exec(exec) if !Path::new(&exec.program).is_absolute() => Err(format!(
                    "`{text}`: the agent does not run in this folder; write the program's absolute path, or give the rig a name in rigs.toml"
                )),
                Target::Replay(_) | Target::Http(_) => {
                    Err(format!("`{text}` cannot be locked: its server or recording serves several clients"))
                }
                _ => Ok(Self::Target(target.to_string())),
            };
        };
        if rig.is_empty() {
            return Err("rig: names no rig; write rig:NAME or rig:KEY=VALUE".to_owned());
        }
        if !rig.contains('=') {
            return if is_name(rig) {
                Ok(Self::Name(rig.to_owned()))
            } else {
                Err(format!("`{rig}` is not a rig's name"))
            };
        }
        let tag = |tag: &str| match tag.split_once('=') {
            Some((key, value)) if is_name(key) && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(format!("`{tag}` is not KEY=VALUE")),
        };
        rig.split(',').map(tag).collect::<Result<_, _>>().map(Self::Tags)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "rig:{name}"),
            Self::Target(target) => f.write_str(target),
            Self::Tags(tags) => {
                f.write_str("rig:")?;
                for (place, (key, value)) in tags.iter().enumerate() {
                    write!(f, "{}{key}={value}", if place == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

impl Selector {
    /// Whether the selector selects this rig of the list.
    pub fn fits(&self, rig: &Spec) -> bool {
        match self {
            Self::Name(name) => rig.name == *name,
            Self::Tags(tags) => tags.iter().all(|(key, value)| rig.tags.get(key) == Some(value)),
            Self::Target(target) => rig.target == *target,
        }
    }

    /// The error for a selector that selects none of these rigs. It names rigs or tags that may
    /// have been meant.
    pub fn nothing<'r>(&self, rigs: impl Iterator<Item = &'r Spec>) -> String {
        let rigs: Vec<&Spec> = rigs.collect();
        if rigs.is_empty() {
            return format!("{self}: rigs.toml has no rig");
        }
        let known: Vec<String> = match self {
            Self::Name(_) | Self::Target(_) => rigs.iter().map(|rig| rig.name.clone()).collect(),
            Self::Tags(_) => {
                let tags = rigs.iter().flat_map(|rig| rig.tags.iter().map(|(key, value)| format!("{key}={value}")));
                let mut tags: Vec<String> = tags.collect();
                tags.sort_unstable();
                tags.dedup();
                tags
            }
        };
        let wanted: Vec<String> = match self {
            Self::Name(name) | Self::Target(name) => vec![name.clone()],
            Self::Tags(tags) => tags.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        };
        let mut near: Vec<(usize, &String)> = known
            .iter()
            .map(|known| (wanted.iter().map(|wanted| strsim::osa_distance(wanted, known)).min().unwrap_or(0), known))
            .collect();
        near.sort();
        let near: Vec<&str> = near.iter().take(5).map(|(_, text)| text.as_str()).collect();
        let what = if matches!(self, Self::Tags(_)) { "tags" } else { "rigs" };
        match near.as_slice() {
            [] => format!("{self}: no rig of rigs.toml has tags"),
            near => format!(
                "{self} is none of the {} rigs in rigs.toml; the nearest {what}: {}",
                rigs.len(),
                near.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn selectors_are_read_as_they_are_written() {
        for text in ["rig:pico1", "rig:board=pico", "rig:board=pico,place=desk", "sim", "serial:/dev/ttyACM0"] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        for (text, error) in [
            ("rig:", "names no rig"),
            ("rig:a b", "is not a rig's name"),
            ("rig:board=", "`board=` is not KEY=VALUE"),
            ("rig:board=pico,", "`` is not KEY=VALUE"),
            ("rig:lab1/pico", "is not a rig's name"),
            ("exec:./rig", "absolute path"),
            ("http://localhost/x", "cannot be locked"),
            ("simm", "absolute path"),
        ] {
            let found = text.parse::<Selector>().unwrap_err();
            assert!(found.contains(error), "{text}: {found}");
        }
    }

    #[test]
    fn a_wrong_list_is_refused_with_its_name_and_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rigs.toml");
        assert_eq!(read(&file).unwrap(), []);
        for (text, error) in [
            ("[[rig]]\nname = 'a'\ntarget = 'sim'\n[[rig]]\nname = 'a'\ntarget = 'sim'\n", "two rigs have the name a"),
            ("[[rig]]\nname = 'a b'\ntarget = 'sim'\n", "the rig's name `a b`"),
            ("[[rig]]\nname = 'a'\ntarget = 'sim'\nlongest = '0s'\n", "longest = \"0s\": must be more than 0s"),
            ("[[rig]]\nname = 'a'\ntarget = 'sim'\nlongest = 'long'\n", "use a duration such as 2h"),
            ("[[rig]]\nname = 'a'\ntarget = 'tcp:1'\n", "rig a: `1` is not an address"),
            ("[[rig]]\nname = 'a'\ntarget = 'sim'\ncolour = 1\n", "unknown field `colour`"),
            ("[[rig]]\nname = 'a'\ntarget = 'sim'\ntags = { x = 'a,b' }\n", "the tag x=a,b"),
            ("[[rig\n", "TOML parse error at line 1"),
        ] {
            fs::write(&file, text).unwrap();
            let found = read(&file).unwrap_err().to_string();
            assert!(found.contains(error) && found.starts_with(&file.display().to_string()), "{text}: {found}");
        }
    }

    #[test]
    fn what_matches_nothing_is_told_with_the_nearest() {
        let rig = |name: &str, board: &str| Spec {
            tags: BTreeMap::from([("board".to_owned(), board.to_owned())]),
            name: name.to_owned(),
            ..Spec::unlisted("sim")
        };
        let rigs = [rig("pico1", "pico"), rig("nano1", "nano")];
        let nothing = |text: &str| text.parse::<Selector>().unwrap().nothing(rigs.iter());
        assert!(nothing("rig:board=pixo").ends_with("the nearest tags: board=pico, board=nano"));
        assert!(nothing("rig:pico2").ends_with("the nearest rigs: pico1, nano1"));
    }
}
