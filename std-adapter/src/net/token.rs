//! Tokens: secrets that clients must send.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

/// More than any token has.
const LONGEST: u64 = 4096;

/// A bearer token. It is compared in constant time, and `Debug` does not print it.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

impl Token {
    /// A token of visible ASCII characters.
    ///
    /// # Errors
    /// The text is empty, has other characters, or has more than 4,096 characters.
    pub fn new(token: &str) -> io::Result<Self> {
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a token must be visible ASCII characters"));
        }
        if token.len() as u64 > LONGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a token has up to {LONGEST} characters")));
        }
        Ok(Self(token.as_bytes().into()))
    }

    /// Reads the token from a regular file, without the white space around it.
    ///
    /// # Errors
    /// The file is not a regular one, cannot be read, or does not contain a token.
    pub fn from_file(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        // Others could keep a reader waiting for ever.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut options = fs::OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt as _;
            // It may have become a FIFO in the meantime; and some regular files of /proc wait for
            // what they will say.
            options.custom_flags((rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits().cast_signed());
        }
        let mut text = String::new();
        options.open(path)?.take(LONGEST + 64).read_to_string(&mut text)?;
        // Editors on Windows begin a file with a byte order mark.
        Self::new(text.trim_start_matches('\u{FEFF}').trim())
    }

    /// A new random token of 32 hexadecimal digits.
    ///
    /// # Panics
    /// If the system cannot provide random numbers.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the system has random numbers");
        Self(format!("{:032x}", u128::from_ne_bytes(bytes)).as_bytes().into())
    }

    /// The token in the file at `path`. If there is no file, it is made with a new token. On Unix,
    /// only this user can read the file and the folder that is made for it.
    ///
    /// # Errors
    /// The file is a link, is not a regular file, belongs to another user, can be read by others,
    /// or cannot be read or made.
    pub fn kept(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(about) => {
                let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                if !about.is_file() {
                    return refuse("not a regular file");
                }
                #[cfg(unix)]
                {
                    use std::os::unix::fs::MetadataExt as _;
                    if about.uid() != rustix::process::geteuid().as_raw() {
                        return refuse("the file belongs to another user");
                    }
                    if about.mode() & 0o077 != 0 {
                        return refuse("other users may use the file: chmod 600 it, or remove it for a new token");
                    }
                }
                Self::from_file(path)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(folder) = path.parent() {
                    make_private(folder)?;
                }
                let token = Self::random();
                match write_new(path, format!("{}\n", token.reveal()).as_bytes()) {
                    // Another server was faster, and its token is the one.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::kept(path),
                    made => made.map(|()| token),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The text of the token, to be shown to those who may use it.
    pub fn reveal(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Whether `other` is this token. The time of the comparison does not depend on where they
    /// differ.
    #[doc(hidden)]
    pub fn is(&self, other: &[u8]) -> bool {
        use subtle::ConstantTimeEq;
        self.0.ct_eq(other).into()
    }
}

/// Writes a new file of this user's own. It has another name until it is whole, so that a writer
/// that is killed leaves no half of it.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_file_name(format!(".rigline-{}.tmp", Token::random().reveal()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written =
        io::Write::write_all(&mut options.open(&new)?, bytes).and_then(|()| match fs::hard_link(&new, path) {
            // Some file systems have no links. A link, other than a new name, takes no other file's
            // place.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists && fs::symlink_metadata(path).is_err() => {
                fs::rename(&new, path)
            }
            linked => linked,
        });
    let _ = fs::remove_file(&new);
    written
}

#[cfg(unix)]
fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_as_editors_write_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["s3cret", "s3cret\n", "s3cret\r\n", "\u{FEFF}s3cret\r\n", " s3cret \n\n"] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(Token::from_file(&file).unwrap().reveal(), "s3cret", "{text:?}");
        }
        for text in ["", "\n", "\u{FEFF}\n", "two words", "two\nlines", "nul\0", "ümlaut"] {
            std::fs::write(&file, text).unwrap();
            let error = Token::from_file(&file).unwrap_err().to_string();
            assert!(error.contains("visible ASCII"), "{text:?}: {error}");
        }
    }
}
