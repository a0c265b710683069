//! The names of users, of groups and of this machine.

use std::fs;

use nix::unistd::{Gid, Group, Uid, User};

use crate::processes::Process;

/// The name of a user; `uid N` if the user has none.
pub fn name(uid: u32) -> String {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    user.map_or_else(|| format!("uid {uid}"), |user| user.name)
}

/// The id of a group, from its name or its id as text.
///
/// # Errors
/// There is no such group.
pub fn group(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match Group::from_name(text) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("there is no group {text}")),
        Err(error) => Err(format!("the group {text} cannot be looked up: {error}")),
    }
}

/// The name of a group; `gid N` if the group has none.
pub fn group_name(gid: u32) -> String {
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    group.map_or_else(|| format!("gid {gid}"), |group| group.name)
}

/// The name of this machine.
pub fn machine() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether a living process belongs to a group, by its effective group or by its supplementary
/// groups (proc(5), `status`).
pub fn is_of_group(process: Process, gid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
    let numbers = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().filter_map(|number| number.parse::<u32>().ok()).collect::<Vec<_>>()
    };
    // The effective one is the second of four.
    let is_of = numbers("Gid:").get(1) == Some(&gid) || numbers("Groups:").contains(&gid);
    // What was read is of this process, and not of one that has its number since.
    is_of && process.is_alive()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_known_by_name_and_number() {
        assert_eq!(name(0), "root");
        assert_eq!(name(4_000_000), "uid 4000000");
        assert_eq!((group("root"), group("61000")), (Ok(0), Ok(61000)));
        assert_eq!(group_name(0), "root");
        assert!(group("no-such-group").unwrap_err().contains("no group no-such-group"));
        let this = Process::this();
        let own = rustix::process::getegid().as_raw();
        assert!(is_of_group(this, own) && !is_of_group(this, 4_000_000));
        assert!(!is_of_group(Process { started: this.started + 1, ..this }, own));
    }
}
