//! The search for evals in a folder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::foreign::{self, AsText};
use super::spec::source::read;
use super::walk;
use super::yaml::{Unreadable, options, unreadable};

/// The largest depth of folders that [`list`] searches, below the folder that it is given.
pub const DEPTH_LIMIT: usize = walk::DEPTH_LIMIT;
/// The largest number of files and folders that [`list`] visits. If there are more,
/// [`Listing::errors`] says so.
pub const ENTRY_LIMIT: usize = walk::ENTRY_LIMIT;
/// The largest number of evals, and the largest number of errors, in one [`Listing`].
pub const LIST_LIMIT: usize = 20_000;

/// An eval that [`list`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListedEval {
    /// The path of the eval file. It begins with the searched folder.
    pub path: PathBuf,
    /// The name of the eval, from its member `name`.
    pub name: String,
    /// The skill that the eval tests, from its member `skill`.
    pub skill: Option<String>,
    /// The version of the eval, from its member `version`.
    pub version: Option<String>,
}

/// The result of a search for evals.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Listing {
    /// The evals, sorted by path.
    pub evals: Vec<ListedEval>,
    /// The files and folders that could not be read, with the reason; and the limits that the
    /// search reached.
    pub errors: Vec<String>,
    /// The links that lead to no file, and the special files such as pipes, which are not read.
    pub warnings: Vec<String>,
}

/// Finds the evals in a folder and in the folders below it.
///
/// A file is an eval if its name is `eval.yaml` or `eval.yml`, or begins or ends with `eval`. Any
/// other `.yaml` or `.yml` file is an eval if it has `tasks` at its top level and does not belong
/// to another program, such as gevals, promptfoo, Inspect or a CI workflow.
///
/// Hidden folders, `node_modules` and `target` are not searched. Links are followed, each folder is
/// searched once, and no file is listed twice. A file that cannot be read is added to
/// [`Listing::errors`].
pub fn list(folder: &Path) -> Listing {
    let mut listing = Listing::default();
    let files = walk(folder, &mut listing);
    let place = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from).min(files.len() / 16 + 1);
    // Each file is read and parsed once, by the next idle thread.
    let root = super::root::current();
    let work = || {
        super::root::confine(root.clone(), || {
            let mut read = Vec::new();
            while let Some((path, is_named)) = files.get(place.fetch_add(1, Ordering::Relaxed)) {
                if let Some(result) = look(path, *is_named) {
                    read.push((path, result));
                }
            }
            read
        })
    };
    let mut read = thread::scope(|scope| {
        let others: Vec<_> = (1..workers).map(|_| scope.spawn(work)).collect();
        let mut read = work();
        for other in others {
            read.extend(other.join().unwrap_or_default());
        }
        read
    });
    read.sort_by_key(|(path, _)| *path);
    for (path, result) in read {
        match result {
            Ok(_) if listing.evals.len() >= LIST_LIMIT => {}
            Ok(head) => listing.evals.push(ListedEval {
                path: path.clone(),
                name: head.name.unwrap_or_default(),
                skill: head.skill,
                version: head.version,
            }),
            Err(_) if listing.errors.len() >= LIST_LIMIT => {}
            Err(error) => listing.errors.push(format!("{}: {error}", path.display())),
        }
    }
    listing
}

/// Files that may be evals, and whether their name says so.
fn walk(folder: &Path, listing: &mut Listing) -> Vec<(PathBuf, bool)> {
    let found = if folder.is_file() {
        walk::Found { files: vec![folder.to_owned()], ..walk::Found::default() }
    } else {
        walk::walk(folder, DEPTH_LIMIT, |path, _| is_entered(path), is_yaml)
    };
    listing.errors.extend(found.errors);
    listing.warnings.extend(found.troubles);
    let with_name = |path: PathBuf| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let is_named = stem.starts_with("eval") || stem.ends_with("eval");
        (path, is_named)
    };
    found.files.into_iter().map(with_name).collect()
}

fn is_entered(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    !(name.starts_with('.') || matches!(&*name, "node_modules" | "target"))
}

fn is_yaml(file: &Path) -> bool {
    file.extension().is_some_and(|end| end.eq_ignore_ascii_case("yaml") || end.eq_ignore_ascii_case("yml"))
}

/// The head of an eval; `None` of a file that is none.
fn look(path: &Path, is_named: bool) -> Option<Result<Head, String>> {
    let text = match read(path) {
        Ok(text) => text,
        Err(error) => return Some(Err(error.to_string())),
    };
    if !is_named && !has_tasks(&text) {
        return None;
    }
    let head = serde_saphyr::from_str_with_options::<Head>(&text, options());
    if head.as_ref().is_ok_and(|head| foreign::program_of(&head.members).is_some()) {
        return None;
    }
    Some(head.map_err(|error| match unreadable(&error) {
        Unreadable { text, line: Some(line) } => format!("line {line}: {text}"),
        Unreadable { text, .. } => text,
    }))
}

/// Whether a line begins with `tasks:` or `tasks_from:`.
fn has_tasks(text: &str) -> bool {
    let text = text.trim_start_matches('\u{feff}');
    ["tasks:", "tasks_from:"].iter().any(|name| text.starts_with(name) || text.contains(&format!("\n{name}")))
}

/// The members of an eval that a list shows. Everything else is parsed and dropped.
#[derive(Debug, Default)]
struct Head {
    name: Option<String>,
    skill: Option<String>,
    version: Option<String>,
    /// The names of all members, and the texts that identify the program of the file.
    members: Vec<(String, Lenient)>,
}

impl AsText for Lenient {
    fn as_text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// A text, if it is one. Null and whatever else is none.
#[derive(Debug)]
struct Lenient(Option<String>);

impl<'de> Deserialize<'de> for Lenient {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The parser gives a number's text as it was written, where a string is asked for.
        Ok(Self(Option::<String>::deserialize(deserializer)?))
    }
}

impl<'de> Deserialize<'de> for Head {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Head;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an eval, which is a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Head, A::Error> {
                let mut head = Head::default();
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "name" => head.name = map.next_value::<Lenient>()?.0,
                        "skill" => head.skill = map.next_value::<Lenient>()?.0,
                        "version" => head.version = map.next_value::<Lenient>()?.0,
                        "kind" => {
                            let kind = map.next_value::<serde_json::Value>()?;
                            head.members.push((name, Lenient(kind.as_str().map(str::to_owned))));
                            continue;
                        }
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                    head.members.push((name, Lenient(None)));
                }
                Ok(head)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    #[cfg(unix)]
    fn evals_are_found_and_trouble_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/eval.yaml", "name: a\nskill: s\nversion: 1.10\ntasks: [x]\n");
        write("a/tasks/t.yaml", "id: t\nsteps: []\n");
        write("b/smoke-eval.yml", "name: b\n");
        write("c/suite.yaml", "name: c\ntasks:\n  - x\n");
        write("d/eval.yaml", "name: [\n");
        write(".git/eval.yaml", "name: hidden\n");
        write("node_modules/x/eval.yaml", "name: foreign\n");
        write("e/eval.yaml", "- no\n- map\n");
        std::os::unix::fs::symlink(root.join("a"), root.join("z-link")).unwrap();
        std::os::unix::fs::symlink(root, root.join("a/loop")).unwrap();
        std::os::unix::fs::symlink(root.join("nowhere"), root.join("dangling.yaml")).unwrap();
        let listing = list(root);
        let found: Vec<_> = listing.evals.iter().map(|eval| (eval.name.as_str(), eval.version.as_deref())).collect();
        assert_eq!(found, [("a", Some("1.10")), ("b", None), ("c", None)]);
        assert_eq!(listing.evals[0].path, root.join("a/eval.yaml"));
        let errors = listing.errors.join("\n");
        for expected in ["d/eval.yaml: line ", "e/eval.yaml: "] {
            assert!(errors.contains(expected), "{expected} in {errors}");
        }
        assert_eq!(listing.errors.len(), 2, "a loop is no error: {errors}");
        assert!(listing.warnings.len() == 1 && listing.warnings[0].contains("dangling.yaml"), "{:?}", listing.warnings);
    }
}
