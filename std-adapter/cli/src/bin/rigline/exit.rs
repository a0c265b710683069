//! The exit codes of every command, in one table.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | The command did what it was asked to do. |
//! | 1 | It ran, and what it ran failed; or its output could not be written. |
//! | 2 | The command line, an argument or a file is wrong or cannot be used. |
//! | 3 | The extension, the device or the server gave no usable response. |
//! | 124 | A time limit passed. |
//! | 128+n | Signal n ended the command. |

/// The command did what it was asked to do.
pub(crate) const SUCCESS: u8 = 0;
/// It ran, and what it ran failed; or its output could not be written.
pub(crate) const FAILED: u8 = 1;
/// The command line, an argument or a file is wrong or cannot be used.
pub(crate) const USAGE: u8 = 2;
/// The extension, the device or the server gave no usable response.
pub(crate) const NO_ANSWER: u8 = 3;
/// A time limit passed.
pub(crate) const TIMED_OUT: u8 = 124;

/// The first words of a list of exit codes in `--help`. A command whose help has them has a list of
/// its own.
pub(crate) const HEADING: &str = "Exit codes:";

/// The table, for `--help`.
pub(crate) const HELP: &str = "Exit codes: 0 success, 1 failed, 2 a wrong command line or an unusable file, 3 no usable response, 124 timed out, 128+n ended by signal n.";
