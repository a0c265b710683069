//! The paths of the agent's socket, its database and the list of rigs.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The longest name of a socket (unix(7), `sun_path`, without its zero).
const SOCKET_LIMIT: usize = 107;

/// The variable that names the folder for all of them.
const FOLDER: &str = "RIGLINE_LAB_DIR";

/// The folders and files of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    state: PathBuf,
    rigs: PathBuf,
    hosts: PathBuf,
    socket: PathBuf,
    is_system: bool,
    /// A variable names them.
    is_named: bool,
}

impl Folders {
    /// The folders of the agent that serves this user.
    ///
    /// If the variable `RIGLINE_LAB_DIR` names a folder, all files are there. Otherwise, if the
    /// [system-wide agent](Self::of_system) exists, they are its folders. Otherwise they are
    /// `$XDG_STATE_HOME/rigline/lab` and `$XDG_CONFIG_HOME/rigline/rigs.toml`.
    ///
    /// # Errors
    /// The user has no home folder.
    pub fn of_user() -> io::Result<Self> {
        use etcetera::BaseStrategy as _;
        if let Some(folder) = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()) {
            return Ok(Self { is_named: true, ..Self::all_in(std::path::absolute(folder)?) });
        }
        let system = Self::of_system();
        // Its list is there also while it does not run: nobody else grants its rigs then.
        let base = etcetera::choose_base_strategy().map_err(io::Error::other)?;
        let hosts = base.config_dir().join("rigline").join("lab.toml");
        if system.rigs.exists() || system.socket.exists() {
            // A user's own list of hosts goes before the system's.
            return Ok(if hosts.exists() { Self { hosts, ..system } } else { system });
        }
        let state = base.state_dir().unwrap_or_else(|| base.data_dir());
        let state = state.join("rigline").join("lab");
        Ok(Self { rigs: base.config_dir().join("rigline").join("rigs.toml"), hosts, ..Self::all_in(state) })
    }

    /// The folders of the system-wide agent, which serves the users of a group:
    /// `/var/lib/rigline/lab`, `/etc/rigline/rigs.toml` and `/run/rigline/agent.sock`. If the
    /// variable `RIGLINE_LAB_SYSTEM_DIR` names a folder, all files are there.
    pub fn of_system() -> Self {
        let (state, rigs, socket) = match std::env::var_os("RIGLINE_LAB_SYSTEM_DIR").filter(|folder| !folder.is_empty())
        {
            Some(folder) => {
                let folder = std::path::absolute(&folder).unwrap_or_else(|_| folder.into());
                (folder.join("state"), folder.join("rigs.toml"), folder.join("agent.sock"))
            }
            None => ("/var/lib/rigline/lab".into(), "/etc/rigline/rigs.toml".into(), "/run/rigline/agent.sock".into()),
        };
        Self { hosts: rigs.with_file_name("lab.toml"), state, rigs, socket, is_system: true, is_named: false }
    }

    /// Returns the folders of an agent that has all its files in `folder`.
    pub fn all_in(folder: PathBuf) -> Self {
        let (rigs, socket) = (folder.join("rigs.toml"), folder.join("agent.sock"));
        let hosts = folder.join("lab.toml");
        Self { rigs, hosts, socket, state: folder, is_system: false, is_named: false }
    }

    /// The variable that names them, for a process in another folder; none if none does.
    pub(crate) fn variable(&self) -> Option<(&'static str, &Path)> {
        self.is_named.then_some((FOLDER, self.state.as_path()))
    }

    /// Returns whether this is the system-wide agent.
    pub fn is_system(&self) -> bool {
        self.is_system
    }

    /// Makes the folder for the state, for this user alone, and the folder for the socket.
    ///
    /// # Errors
    /// The folder cannot be made or belongs to another user, or the path of the socket is too long.
    pub fn make(&self) -> io::Result<()> {
        let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
        let length = self.socket.as_os_str().len();
        if length > SOCKET_LIMIT {
            return Err(invalid(format!(
                "{} has {length} bytes, and the name of a socket may have {SOCKET_LIMIT}; name a shorter folder by RIGLINE_LAB_DIR",
                self.socket.display()
            )));
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.state)?;
        let owner = fs::metadata(&self.state)?.uid();
        if owner != rustix::process::getuid().as_raw() {
            return Err(invalid(format!("{} is the folder of another user (uid {owner})", self.state.display())));
        }
        if let Some(folder) = self.socket.parent().filter(|folder| self.is_system && !folder.is_dir()) {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
        }
        Ok(())
    }

    /// Returns the path of the agent's socket.
    pub fn socket_path(&self) -> PathBuf {
        self.socket.clone()
    }

    /// Returns the path of the file that a running agent keeps locked.
    pub fn lock_file(&self) -> PathBuf {
        self.state.join("agent.lock")
    }

    /// Returns the path of the file that a command keeps locked while it starts the agent.
    pub fn start_lock_file(&self) -> PathBuf {
        self.state.join("starting.lock")
    }

    /// Returns the path of the agent's books: the database of leases, health and log.
    pub fn books_file(&self) -> PathBuf {
        self.state.join("books.redb")
    }

    /// Returns the path of the file for messages of an agent that was started on demand.
    pub fn log_file(&self) -> PathBuf {
        self.state.join("agent.log")
    }

    /// Returns the path of the list of rigs, `rigs.toml`.
    pub fn rigs_file(&self) -> PathBuf {
        self.rigs.clone()
    }

    /// Returns the path of the list of other hosts, `lab.toml`.
    pub fn hosts_file(&self) -> PathBuf {
        self.hosts.clone()
    }

    /// Returns the path of the folder for the state.
    pub fn state_folder(&self) -> PathBuf {
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
            let folders = Folders::all_in(folder.path().join("x".repeat(length)));
            let made = folders.make();
            assert_eq!(made.is_ok(), is_fine, "{made:?}");
            if let Err(error) = made {
                assert!(error.to_string().contains("may have 107"), "{error}");
            }
        }
    }
}
