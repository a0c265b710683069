//! The environment that the tests are written for.
//!
//! `main` is the test harness's, so this runs before it: there are no other threads yet.
//!
//! | what | value |
//! |---|---|
//! | signals | each at its default, none blocked: `nohup` and background jobs have their children ignore some |
//! | `umask` | 022 |
//! | `LANG` | `C.UTF-8`; `LC_*` and `LANGUAGE` are not set |
//! | `TZ` | `UTC` |
//! | `HOME` | a folder beside the test programs; `XDG_*` are not set. `CARGO_HOME` and `RUSTUP_HOME` stay what they were |
//! | proxies, colours, the product's own variables | not set |

use std::env;
use std::path::Path;

/// Variables that change what programs write or where they look, and that no test expects.
const REMOVED: &[&str] = &[
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "FORCE_COLOR",
    "LANGUAGE",
    "LINES",
    "NO_COLOR",
    "RIGLINE_COMPLETE",
    "RIGLINE_LIFELINE",
    "RIGLINE_ROOT",
    "RIGLINE_WITHIN",
];

const PREFIXES: &[&str] = &["LC_", "XDG_"];

fn is_removed(name: &str) -> bool {
    // `http_proxy`, `ALL_PROXY`, …: tests that use the network need none, since they only use this computer.
    let is_proxy = name.to_ascii_lowercase().ends_with("_proxy") && !name.starts_with("CARGO_");
    is_proxy || REMOVED.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Sets the environment of this process. Programs that it starts inherit it.
///
/// # Safety
/// No other thread may exist: the environment of a process is not safe to change beside one that reads it.
pub unsafe fn set() {
    let names: Vec<_> = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    // SAFETY: as for this function.
    unsafe {
        for name in names.iter().filter(|name| is_removed(name)) {
            env::remove_var(name);
        }
        env::set_var("LANG", "C.UTF-8");
        env::set_var("TZ", "UTC");
        set_home();
    }
    #[cfg(unix)]
    // SAFETY: both functions change only what the kernel knows of this process, and have no pointer to anything of ours.
    unsafe {
        libc::umask(0o022);
        set_signals();
    }
}

/// # Safety
/// As for [`set`].
unsafe fn set_home() {
    let Some(folder) = env::current_exe().ok().as_deref().and_then(Path::parent).map(|folder| folder.join("test-home"))
    else {
        return;
    };
    if std::fs::create_dir_all(&folder).is_err() {
        return;
    }
    // Cargo and rustup look below the home, where no variable says otherwise.
    let home = env::home_dir();
    // SAFETY: as for this function.
    unsafe {
        for (name, within) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            if let Some(place) = home.as_ref().map(|home| home.join(within))
                && env::var_os(name).is_none()
                && place.is_dir()
            {
                env::set_var(name, place);
            }
        }
        env::set_var(if cfg!(windows) { "USERPROFILE" } else { "HOME" }, folder);
    }
}

/// # Safety
/// As for [`set`].
#[cfg(unix)]
unsafe fn set_signals() {
    // SAFETY: a set of signals is plain data, which `sigemptyset` fills, and SIG_DFL is a disposition for each signal. Those that
    // do not exist or have none to set are refused without harm.
    unsafe {
        let mut none = core::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, core::ptr::null_mut());
        for signal in 1..32 {
            // Rust's runtime ignores SIGPIPE for itself, and gives the default back to the programs that it starts.
            if signal != libc::SIGPIPE {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

ctor::declarative::ctor! {
    #[ctor(unsafe)]
    fn before_the_harness() {
        // A program that only uses the support's library keeps what its user gave it: cargo puts test programs into `deps`.
        let folder = env::current_exe().ok().and_then(|program| Some(program.parent()?.file_name()?.to_owned()));
        if folder.is_some_and(|folder| folder == "deps") {
            // SAFETY: this runs before `main`, and so before the first other thread.
            unsafe { set() }
        }
    }
}
