//! Walking through folders: links are followed, each folder and each file is seen once, and there
//! is a bound.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern};

/// How deep folders are walked into.
pub(super) const DEPTH_LIMIT: usize = 32;
/// The number of files and folders that are visited.
pub(super) const ENTRY_LIMIT: usize = 200_000;

/// The findings.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Files. A file that several paths lead to is listed by the one without links, if there is
    /// one.
    pub(super) files: Vec<PathBuf>,
    /// Links that lead nowhere, and what is not a regular file: perhaps what was meant, but no
    /// reason to stop.
    pub(super) troubles: Vec<String>,
    /// Files that could not be read, and limits that were reached.
    pub(super) errors: Vec<String>,
}

/// Looks for files below a folder. `enter` says which folders are walked into, `wanted` which files
/// are listed; both get the path from `folder`, and its depth, from 1.
pub(super) fn walk(
    folder: &Path,
    depth: usize,
    mut enter: impl FnMut(&Path, usize) -> bool,
    mut wanted: impl FnMut(&Path) -> bool,
) -> Found {
    let mut found = Found::default();
    let mut seen = HashSet::new();
    let mut count = 0;
    // Folders without links first, so that the paths that are listed have as few links as can be.
    let mut links = vec![(folder.to_owned(), 0)];
    while let Some((path, level)) = links.pop() {
        let mut folders = vec![(path, level)];
        while let Some((path, level)) = folders.pop() {
            match identity(&path) {
                Ok(id) => {
                    if !seen.insert(id) {
                        continue;
                    }
                }
                Err(error) => {
                    found.errors.push(format!("{}: {error}", path.display()));
                    continue;
                }
            }
            let mut entries: Vec<OsString> = Vec::new();
            match fs::read_dir(&path) {
                Ok(listed) => {
                    for entry in listed {
                        count += 1;
                        if count > ENTRY_LIMIT {
                            found.errors.push(format!(
                                "{}: more than {ENTRY_LIMIT} files and folders: the rest was not looked at",
                                folder.display()
                            ));
                            return found;
                        }
                        match entry {
                            Ok(entry) => entries.push(entry.file_name()),
                            Err(error) => found.errors.push(format!("{}: {error}", path.display())),
                        }
                    }
                }
                Err(error) => {
                    found.errors.push(format!("{}: {error}", path.display()));
                    continue;
                }
            }
            // The last is taken first.
            entries.sort_unstable_by(|a, b| b.cmp(a));
            for name in entries {
                let inner = path.join(&name);
                let from_folder = inner.strip_prefix(folder).unwrap_or(&inner).to_owned();
                let (is_link, about) = match entry(&inner) {
                    Some((is_link, Ok(about))) => (is_link, about),
                    Some((_, Err(error))) => {
                        if enter(&from_folder, level + 1) || wanted(&from_folder) {
                            found.troubles.push(format!("{}: a link that leads nowhere: {error}", inner.display()));
                        }
                        continue;
                    }
                    None => continue,
                };
                if about.is_dir() {
                    if !enter(&from_folder, level + 1) {
                        continue;
                    }
                    if level + 1 > depth {
                        found.errors.push(format!("{}: folders are looked into {depth} levels deep", inner.display()));
                    } else if is_link {
                        links.insert(0, (inner, level + 1));
                    } else {
                        folders.push((inner, level + 1));
                    }
                } else if wanted(&from_folder) {
                    if !about.is_file() {
                        // To read a FIFO or a device could take for ever.
                        found.troubles.push(format!("{}: not a regular file, so it is left out", inner.display()));
                    } else if is_link {
                        links.push((inner, usize::MAX));
                    } else {
                        found.files.push(inner);
                    }
                }
            }
        }
        // Files that links lead to, which may have been listed by their own names.
        links.retain(|(path, level)| {
            if *level == usize::MAX {
                found.files.push(path.clone());
            }
            *level != usize::MAX
        });
    }
    let mut seen = HashSet::new();
    let (mut plain, linked): (Vec<PathBuf>, Vec<PathBuf>) =
        found.files.drain(..).partition(|path| fs::symlink_metadata(path).is_ok_and(|about| !about.is_symlink()));
    plain.retain(|path| path.canonicalize().map_or(true, |path| seen.insert(path)));
    plain.extend(linked.into_iter().filter(|path| path.canonicalize().map_or(true, |path| seen.insert(path))));
    plain.sort_unstable();
    found.files = plain;
    found.troubles.sort_unstable();
    shorten(&mut found.troubles);
    shorten(&mut found.errors);
    found
}

/// Whether an entry of a folder is a link, and what it is, or what it leads to. `None` of one that
/// is gone, and of a link out of the root.
fn entry(path: &Path) -> Option<(bool, io::Result<fs::Metadata>)> {
    let about = fs::symlink_metadata(path).ok()?;
    if !about.is_symlink() {
        return Some((false, Ok(about)));
    }
    (!super::root::leads_out(path)).then(|| (true, fs::metadata(path)))
}

/// Leaves out what nobody reads: a folder may have thousands of links that lead nowhere.
fn shorten(texts: &mut Vec<String>) {
    const LISTED: usize = 20;
    if let Some(more) = texts.len().checked_sub(LISTED).filter(|more| *more > 0) {
        texts.truncate(LISTED);
        texts.push(format!("… and {more} more like these"));
    }
}

/// The identity of a folder, independent of its path.
#[cfg(unix)]
fn identity(folder: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let about = fs::metadata(folder)?;
    Ok((about.dev(), about.ino()))
}

#[cfg(not(unix))]
fn identity(folder: &Path) -> io::Result<PathBuf> {
    folder.canonicalize()
}

/// The files that a pattern matches, in `folder`: sorted, each once. `*`, `?` and `[…]` match
/// within a name, `**` matches folders.
pub(super) fn matching(folder: &Path, pattern: &str) -> Result<Found, String> {
    // The name of a file, with brackets perhaps.
    let literal = folder.join(pattern);
    if !pattern.contains(['*', '?', '[']) || literal.is_file() {
        let is_there = fs::symlink_metadata(&literal).is_ok() && !literal.is_dir();
        return Ok(Found { files: is_there.then_some(literal).into_iter().collect(), ..Found::default() });
    }
    let is_plain = |part: &Component<'_>| !part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
    let parts: Vec<Component<'_>> = Path::new(pattern).components().collect();
    let plain = parts.iter().take_while(|part| is_plain(part)).count();
    let (before, rest) = parts.split_at(plain);
    if rest.iter().any(|part| matches!(part, Component::ParentDir)) {
        return Err("`..` after a wildcard is not supported".to_owned());
    }
    let base = folder.join(before.iter().collect::<PathBuf>());
    if !base.is_dir() {
        return Ok(Found::default());
    }
    let each: Vec<&OsStr> = rest.iter().map(|part| part.as_os_str()).collect();
    let patterns: Vec<Option<Pattern>> = each
        .iter()
        .map(|part| match part.to_str() {
            Some("**") => Ok(None),
            _ => Pattern::new(&part.to_string_lossy()).map(Some).map_err(|error| error.to_string()),
        })
        .collect::<Result<_, _>>()?;
    let first_deep = patterns.iter().position(Option::is_none).unwrap_or(patterns.len());
    let fits = |path: &Path| {
        let names: Vec<_> = path.iter().map(OsStr::to_string_lossy).collect();
        matches(&patterns, &names)
    };
    let enter = |path: &Path, level: usize| {
        // Up to the first `**`, a folder's name has to be the pattern's.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match patterns.get(level - 1) {
            _ if level > first_deep => true,
            Some(Some(pattern)) => level < patterns.len() && pattern.matches_with(&name, OPTIONS),
            _ => false,
        }
    };
    let found = walk(&base, DEPTH_LIMIT, enter, fits);
    match found.errors.first() {
        Some(error) => Err(error.clone()),
        None => Ok(found),
    }
}

const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// Whether names match a pattern, in which `None` matches any number of them. The work is at most
/// the product of both.
fn matches(patterns: &[Option<Pattern>], names: &[std::borrow::Cow<'_, str>]) -> bool {
    // Whether the first so many patterns take the names up to here.
    let mut taken = vec![false; patterns.len() + 1];
    taken[0] = true;
    for (place, pattern) in patterns.iter().enumerate() {
        taken[place + 1] = pattern.is_none() && taken[place];
    }
    for name in names {
        let mut next = vec![false; patterns.len() + 1];
        for (place, pattern) in patterns.iter().enumerate() {
            next[place + 1] = match pattern {
                Some(pattern) => taken[place] && pattern.matches_with(name, OPTIONS),
                // It takes this name too, or none more.
                None => taken[place + 1] || next[place],
            };
        }
        taken = next;
    }
    taken.last() == Some(&true)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, Instant};

    use super::*;

    fn names(folder: &Path, pattern: &str) -> Vec<String> {
        let found = matching(folder, pattern).unwrap();
        let names = found.files.iter().map(|path| path.strip_prefix(folder).unwrap().to_string_lossy().into_owned());
        names.collect()
    }

    #[test]
    fn patterns_mean_what_they_say() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.yaml", "t/b.yaml", "t/u/c.yaml", "t/u/v/d.yaml", "s/u/e.yaml", "t/[x].yaml", ".h/f.yaml"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let table: &[(&str, &[&str])] = &[
            ("a.yaml", &["a.yaml"]),
            ("*.yaml", &["a.yaml"]),
            ("t/*.yaml", &["t/[x].yaml", "t/b.yaml"]),
            ("t/[x].yaml", &["t/[x].yaml"]),
            ("*/u/*.yaml", &["s/u/e.yaml", "t/u/c.yaml"]),
            ("t/**/*.yaml", &["t/[x].yaml", "t/b.yaml", "t/u/c.yaml", "t/u/v/d.yaml"]),
            ("**/u/**/*.yaml", &["s/u/e.yaml", "t/u/c.yaml", "t/u/v/d.yaml"]),
            ("**/d.yaml", &["t/u/v/d.yaml"]),
            ("**/**/**/d.yaml", &["t/u/v/d.yaml"]),
            ("./t/?.yaml", &["t/b.yaml"]),
            ("no/*.yaml", &[]),
            ("no.yaml", &[]),
        ];
        for (pattern, expected) in table {
            assert_eq!(names(folder.path(), pattern), *expected, "{pattern}");
        }
        assert_eq!(matching(&folder.path().join("t"), "../s/**/*.yaml").unwrap().files.len(), 1);
        assert!(matching(folder.path(), "*/../a.yaml").is_err());
        assert!(
            matching(folder.path(), "t/[").is_ok_and(|found| found.files.is_empty())
                || matching(folder.path(), "t/[").is_err()
        );
    }

    /// Reports: rust-lang/glob#62, python/cpython#88041.
    #[test]
    fn loops_end_and_each_file_is_seen_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        // Two links to the parent folder; and thirty folders of which each has two links to the
        // next: 2^30 paths.
        fs::create_dir_all(root.join("t")).unwrap();
        fs::write(root.join("t/task-1.yaml"), "").unwrap();
        symlink("..", root.join("t/a")).unwrap();
        symlink("..", root.join("t/b")).unwrap();
        for number in 0..30 {
            let level = root.join(format!("d{number}"));
            fs::create_dir(&level).unwrap();
            symlink(format!("../d{}", number + 1), level.join("x")).unwrap();
            symlink(format!("../d{}", number + 1), level.join("y")).unwrap();
        }
        fs::create_dir(root.join("d30")).unwrap();
        fs::write(root.join("d30/task-2.yaml"), "").unwrap();
        symlink("d30/task-2.yaml", root.join("again-task-3.yaml")).unwrap();
        symlink("nowhere", root.join("task-gone.yaml")).unwrap();
        let start = Instant::now();
        let found = matching(root, "**/*task-*.yaml").unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        let paths: Vec<_> = found.files.iter().map(|path| path.strip_prefix(root).unwrap().to_str().unwrap()).collect();
        assert_eq!(paths, ["d30/task-2.yaml", "t/task-1.yaml"]);
        assert!(found.troubles.len() == 1 && found.troubles[0].contains("task-gone.yaml"), "{:?}", found.troubles);
        // A FIFO is reported, and not opened. Only the first of many faults are reported.
        rustix::fs::mknodat(rustix::fs::CWD, root.join("task-0.yaml"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let found = matching(root, "task-*.yaml").unwrap();
        assert!(
            found.files.is_empty() && found.troubles[0].ends_with("task-0.yaml: not a regular file, so it is left out")
        );
        for number in 0..30 {
            symlink("nowhere", root.join(format!("task-gone-{number}.yaml"))).unwrap();
        }
        let found = matching(root, "task-*.yaml").unwrap();
        assert_eq!((found.troubles.len(), &*found.troubles[20]), (21, "… and 12 more like these"));
        let stars = format!("**/{}b.yaml", "*a".repeat(50));
        let long = root.join("a".repeat(250));
        fs::write(long, "").unwrap();
        let start = Instant::now();
        assert!(names(root, &stars).is_empty());
        assert!(names(root, &format!("{}x", "**/".repeat(60))).is_empty());
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }

    /// Reports: dduan/tre#141, olson-sean-k/wax#26, rust-lang/rust#15890.
    #[test]
    fn names_that_are_not_utf_8_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let bad = folder.path().join(OsStr::from_bytes(b"bad\xff"));
        fs::create_dir_all(bad.join("t")).unwrap();
        let task = bad.join("t").join(OsStr::from_bytes(b"\xfe.yaml"));
        fs::write(&task, "").unwrap();
        assert_eq!(matching(&bad, "t/*.yaml").unwrap().files, std::slice::from_ref(&task));
        assert_eq!(matching(folder.path(), "**/*.yaml").unwrap().files, [task]);
    }
}
