//! Files that steps attach. Each is a copy of a file below the working folder of a trial. The
//! copies are in a folder beside the record of the run.
//!
//! A file is copied when its step has ended. A later trial or run may write a file of the same
//! name; the copy stays as it is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::root::Root;
use super::walk;
use rigline_host::files;
use rigline_std::clock::unix_millis;
use rigline_std::mutex::lock;

/// The largest size of one attached file: 32 MiB. A larger file is not copied, and its
/// [`Attachment::error`] says so.
pub const FILE_LIMIT: u64 = 32 << 20;
/// The largest number of files that one step attaches. Further files are left out, and an
/// [`Attachment::error`] says so.
pub const STEP_LIMIT: usize = 32;
/// The largest number of files that all steps of a run attach together.
pub const RUN_LIMIT: usize = 1000;
/// The largest number of bytes that the attached files of one run have together: 512 MiB.
pub const BYTES_LIMIT: u64 = 512 << 20;
/// The largest number of patterns in the member `attach` of a step.
pub(super) const PATTERN_LIMIT: usize = 32;

/// A file that a step attached, or the reason why the file is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[non_exhaustive]
pub struct Attachment {
    /// The path of the original file, from the working folder of the trial. If no file was found,
    /// this is the pattern of the step.
    pub name: String,
    /// The media type of the file, such as `text/csv`. It is chosen by the name of the file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// The absolute path of the copy. `None` if there is no copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The size of the copy, in bytes. `None` if there is no copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The SHA-256 hash of the copy, in hexadecimal digits. `None` if there is no copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The time at which the original file was last written, in milliseconds since 1970 (UTC).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_at_ms: Option<u64>,
    /// Whether the original file was last written more than two seconds before the trial began.
    /// Such a file was not made by the trial.
    pub is_older: bool,
    /// The reason why there is no copy. `None` if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The folder that the attached files of a run are copied to, and the number and size of the copies
/// so far.
#[derive(Debug)]
pub(super) struct Attachments {
    folder: PathBuf,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    bytes: u64,
}

/// The fault of a pattern of `attach`, if there is one.
pub(super) fn fault(pattern: &str) -> Option<String> {
    let path = Path::new(pattern);
    match () {
        () if pattern.trim().is_empty() => Some("attach: must not be empty".to_owned()),
        () if path.is_absolute()
            || path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) =>
        {
            Some(format!("attach: {pattern}: only files below the workdir can be attached, without `..`"))
        }
        () => None,
    }
}

impl Attachments {
    /// Attachments that are copied into `folder`. The folder is made when the first file is
    /// attached.
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, taken: Mutex::default() }
    }

    /// Copies the files below `workdir` that match the patterns. `began` is the time at which the
    /// trial began.
    pub(super) fn copy(&self, workdir: &Path, patterns: &[String], began: SystemTime) -> Vec<Attachment> {
        let failed = |pattern: &String, error: String| Attachment {
            name: pattern.clone(),
            error: Some(error),
            ..Attachment::default()
        };
        let root = match Root::new(workdir) {
            Ok(root) => root,
            Err(error) => return patterns.iter().map(|pattern| failed(pattern, error.to_string())).collect(),
        };
        let mut all: Vec<Attachment> = Vec::new();
        for pattern in patterns {
            let found = match root.confine(|| walk::matching(root.folder(), pattern)) {
                Ok(found) => found.files,
                Err(error) => {
                    all.push(failed(pattern, error));
                    continue;
                }
            };
            if found.is_empty() {
                all.push(failed(pattern, "there is no such file below the workdir".to_owned()));
            }
            for path in found {
                let name = path.strip_prefix(root.folder()).unwrap_or(&path).to_string_lossy().into_owned();
                if all.iter().any(|known| known.name == name) {
                    continue;
                }
                if all.len() >= STEP_LIMIT {
                    all.push(failed(
                        pattern,
                        format!("a step attaches at most {STEP_LIMIT} files: the rest is left out"),
                    ));
                    return all;
                }
                all.push(self.copy_one(&root, &path, name, began));
            }
        }
        all
    }

    fn copy_one(&self, root: &Root, path: &Path, name: String, began: SystemTime) -> Attachment {
        let content_type = content_type(&name).to_owned();
        let attachment = Attachment { name, content_type, ..Attachment::default() };
        match self.copied(root, path, &attachment.name) {
            Ok(Copied { path, bytes, sha256, modified }) => Attachment {
                path: Some(path.to_string_lossy().into_owned()),
                bytes: Some(bytes),
                sha256: Some(sha256),
                modified_at_ms: modified.map(unix_millis),
                // File systems and their clocks are less exact than the system's.
                is_older: modified.is_some_and(|at| began.duration_since(at).is_ok_and(|age| age.as_millis() > 2000)),
                ..attachment
            },
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && root.resolve(path).is_err() => {
                Attachment { error: Some("the link leads out of the workdir".to_owned()), ..attachment }
            }
            Err(error) => Attachment { error: Some(error.to_string()), ..attachment },
        }
    }

    fn copied(&self, root: &Root, path: &Path, name: &str) -> io::Result<Copied> {
        let file = root.confine(|| super::root::open(path))?;
        let about = file.metadata()?;
        if !about.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        if about.len() > FILE_LIMIT {
            return Err(too_large(&format!(
                "{} bytes, and a file that is attached has at most {FILE_LIMIT}",
                about.len()
            )));
        }
        let number = {
            let mut taken = lock(&self.taken);
            if taken.count >= RUN_LIMIT {
                return Err(too_large(&format!("a run has at most {RUN_LIMIT} attached files")));
            }
            if taken.bytes.saturating_add(about.len()) > BYTES_LIMIT {
                return Err(too_large(&format!("the attached files of a run have at most {BYTES_LIMIT} bytes")));
            }
            taken.count += 1;
            taken.bytes += about.len();
            taken.count
        };
        make_private(&self.folder)?;
        let copy = self.folder.join(format!("{number}-{}", plain(name)));
        let (sha256, bytes) = copy_bytes(file, &copy).inspect_err(|_| drop(fs::remove_file(&copy)))?;
        Ok(Copied { path: std::path::absolute(&copy).unwrap_or(copy), bytes, sha256, modified: about.modified().ok() })
    }
}

struct Copied {
    path: PathBuf,
    bytes: u64,
    sha256: String,
    modified: Option<SystemTime>,
}

fn too_large(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, text)
}

fn make_private(folder: &Path) -> io::Result<()> {
    #[cfg_attr(not(unix), expect(unused_mut))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    match builder.create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Copies a file that may still grow, up to the limit. Returns the hash of what was copied, and its size.
fn copy_bytes(file: File, to: &Path) -> io::Result<(String, u64)> {
    let mut from = file.take(FILE_LIMIT + 1);
    let mut to = files::private(OpenOptions::new().write(true).create_new(true)).open(to)?;
    let (mut hash, mut length) = (Sha256::new(), 0);
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut chunk)?;
        let part = chunk.get(..read).unwrap_or_default();
        if part.is_empty() {
            return Ok((hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), length));
        }
        length += read as u64;
        if length > FILE_LIMIT {
            return Err(too_large(&format!("a file that is attached has at most {FILE_LIMIT} bytes")));
        }
        hash.update(part);
        to.write_all(part)?;
    }
}

/// The name of a copy: the end of the file's, of characters that need no quotes in a path, a URL or a report.
fn plain(name: &str) -> String {
    const LENGTH: usize = 80;
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._-".contains(char);
    let name: Vec<char> = name.chars().map(|char| if is_plain(char) { char } else { '_' }).collect();
    name.iter().skip(name.len().saturating_sub(LENGTH)).collect()
}

/// The media type of a file of that name.
fn content_type(name: &str) -> &'static str {
    const TYPES: &[(&str, &str)] = &[
        ("png", "image/png"),
        ("jpg", "image/jpeg"),
        ("jpeg", "image/jpeg"),
        ("gif", "image/gif"),
        ("webp", "image/webp"),
        ("svg", "image/svg+xml"),
        ("bmp", "image/bmp"),
        ("pdf", "application/pdf"),
        ("json", "application/json"),
        ("jsonl", "application/jsonl"),
        ("csv", "text/csv"),
        ("txt", "text/plain"),
        ("log", "text/plain"),
        ("html", "text/html"),
        ("xml", "application/xml"),
        ("wav", "audio/wav"),
        ("mp4", "video/mp4"),
        ("zip", "application/zip"),
    ];
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let found = TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(ending));
    found.map_or("application/octet-stream", |(_, kind)| kind)
}
