//! Recordings of sessions: writing them during a session, and replaying them later.
//!
//! A recording is a folder. `rigline call --record DIR` and `rigline eval run --record DIR` make one, and the target `replay:DIR`
//! means the extension that was recorded ([`Target::Replay`](crate::target::Target::Replay)).
//!
//! | file | content |
//! |---|---|
//! | `run.json` | which command ran when, what the rig said of itself, versions, hashes, and how the device's clock relates to the host's |
//! | `session.jsonl` | every line in both directions, with the host's clock: see [`transcript`] |
//! | `values.jsonl` | the outputs of each operation, and the measurements of evals, a line each |
//! | `report.json` | the result, as `--json` prints it |
//! | `uart.jsonl` | what the board under test wrote to its UART, where the rig passes that on |
//!
//! # The device's clock
//! An output or a log member called `uptime_ms` or `uptime_us` is a reading of the device's clock. Each reading was taken after its request
//! was sent and before its reply came; [`Recorder`] keeps the range that all readings leave for the offset between the clocks.
//!
//! # The UART of the board under test
//! A rig that listens to that UART passes each line on as a log whose data has the member `uart`:
//! `{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"uart","data":{"uart":"U-Boot 2026.01"}}}`.

mod clock;
mod days;
mod folder;
mod recorder;
mod replay;
pub mod transcript;

pub use folder::{Folder, FolderError, RUN, SESSION};
pub use recorder::Recorder;
pub use replay::{Action, LoadedRecording, Player};
pub(crate) use transcript::Direction;
