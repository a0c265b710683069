//! The reports of runs, for people and for other programs: JSON, JUnit, CTRF, TAP, an HTML page,
//! and the summary of GitHub Actions.
//!
//! All of them are written from one model, [`Results`]. The JSON report is the model itself.

mod ctrf;
mod github;
mod html;
pub mod junit;
mod plot;
mod tap;
mod trend;

pub(crate) use super::attach::Attachment;
pub use super::digits::Digits;
pub use super::model::{
    Attempt, FailedValue, Grader, Hashed, Host, Logs, Mark, Measured, Past, ReportCase, Results, Rig, Run, Statistic,
    Step, Summary, Task, Trial, UnrunnableEval,
};
pub use ctrf::ctrf;
pub use github::{annotations, summary};
pub use html::html;
pub use tap::tap;
pub use trend::{EARLIER, earlier};

#[cfg(test)]
mod tests;
