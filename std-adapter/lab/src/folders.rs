//! Where the agent has its socket and its books, and where the list of rigs is.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;

/// The longest name of a socket (unix(7), `sun_path`, without its zero).
const SOCKET_LIMIT: usize = 107;

/// The folders of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    state: PathBuf,
    rigs: PathBuf,
}

impl Folders {
    /// Those of this user: `$XDG_STATE_HOME/rigline/lab` and `$XDG_CONFIG_HOME/rigline/rigs.toml`; or both in the folder that the variable
    /// `RIGLINE_LAB_DIR` names.
    ///
    /// # Errors
    /// The user has no home.
    pub fn of_user() -> io::Result<Self> {
        use etcetera::BaseStrategy as _;
        if let Some(folder) = std::env::var_os("RIGLINE_LAB_DIR").filter(|folder| !folder.is_empty()) {
            return Ok(Self::in_one(std::path::absolute(folder)?));
        }
        let base = etcetera::choose_base_strategy().map_err(io::Error::other)?;
        let state = base.state_dir().unwrap_or_else(|| base.data_dir());
        Ok(Self { state: state.join("rigline").join("lab"), rigs: base.config_dir().join("rigline").join("rigs.toml") })
    }

    /// Puts all files into one folder.
    pub fn in_one(folder: PathBuf) -> Self {
        Self { rigs: folder.join("rigs.toml"), state: folder }
    }

    /// Makes the folder for the state, for this user alone. Returns whether it was there already.
    ///
    /// # Errors
    /// It cannot be made, is another user's, or its name is too long for a socket in it.
    pub fn make(&self) -> io::Result<bool> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let length = self.socket().as_os_str().len();
        if length > SOCKET_LIMIT {
            return Err(invalid(format!(
                "{} has {length} bytes, and the name of a socket may have {SOCKET_LIMIT}; name a shorter folder by RIGLINE_LAB_DIR",
                self.socket().display()
            )));
        }
        let was_there = self.state.is_dir();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.state)?;
        let owner = fs::metadata(&self.state)?.uid();
        if owner != rustix::process::getuid().as_raw() {
            return Err(invalid(format!("{} is the folder of another user (uid {owner})", self.state.display())));
        }
        Ok(was_there)
    }

    /// The agent's socket.
    pub fn socket(&self) -> PathBuf {
        self.state.join("agent.sock")
    }

    /// The file that a living agent has locked.
    pub fn lock(&self) -> PathBuf {
        self.state.join("agent.lock")
    }

    /// The agent's books.
    pub fn books(&self) -> PathBuf {
        self.state.join("books.redb")
    }

    /// The messages of an agent that was started on demand.
    pub fn messages(&self) -> PathBuf {
        self.state.join("agent.log")
    }

    /// The list of rigs.
    pub fn rigs(&self) -> PathBuf {
        self.rigs.clone()
    }

    /// The folder for the state.
    pub fn state(&self) -> PathBuf {
        self.state.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_whose_socket_has_too_long_a_name_is_refused_with_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let room = SOCKET_LIMIT - folder.path().as_os_str().len() - "//agent.sock".len();
        for (length, is_fine) in [(room, true), (room + 1, false)] {
            let folders = Folders::in_one(folder.path().join("x".repeat(length)));
            let made = folders.make();
            assert_eq!(made.is_ok(), is_fine, "{made:?}");
            if let Err(error) = made {
                assert!(error.to_string().contains("may have 107"), "{error}");
            }
        }
    }
}
