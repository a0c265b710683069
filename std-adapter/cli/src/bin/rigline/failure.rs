//! Why a command fails, and with which exit code.

use std::fmt::Display;
use std::process::ExitCode;

use rigline_host::HostError;
use rigline_host::client::{Cause, ClientError};
use rigline_host::relay::RelayError;

use crate::exit::{FAILED, NO_ANSWER, TIMED_OUT, USAGE};
use crate::out;

/// Advice where no device is found.
const WITHOUT_HARDWARE: &str = "\nThe built-in rig needs no hardware; try: rigline call sim measure channel=3V3\n`rigline ports` lists serial ports; use --wait 60s to wait for a device";

/// Why a command ends with a code other than 0. It is printed on standard error.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn usage(text: impl Display) -> Self {
        Self { code: USAGE, text: text.to_string() }
    }

    pub(crate) fn failed(text: impl Display) -> Self {
        Self { code: FAILED, text: text.to_string() }
    }

    pub(crate) fn no_answer(text: impl Display) -> Self {
        Self { code: NO_ANSWER, text: text.to_string() }
    }

    /// Prints it, and returns the exit code.
    pub(crate) fn tell(&self) -> ExitCode {
        out::complain_of_failure(&self.text);
        ExitCode::from(self.code)
    }

    pub(crate) fn of(error: &HostError) -> Self {
        let advice = if matches!(error, HostError::NoDevice { .. }) { WITHOUT_HARDWARE } else { "" };
        let code = match error {
            HostError::Unsupported(_) | HostError::NoObject(_) | HostError::Types { what: "the arguments", .. } => {
                USAGE
            }
            error if error.is_timeout() => TIMED_OUT,
            _ => NO_ANSWER,
        };
        Self { code, text: format!("{error}{advice}") }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Host(error) => return Self::of(error),
            ClientError::Other { cause: Cause::Usage, .. } => USAGE,
            ClientError::Other { cause: Cause::Timeout, .. } => TIMED_OUT,
            ClientError::Other { cause: Cause::Refused, .. } => FAILED,
            ClientError::Other { cause: Cause::Bridge(code), .. } => *code,
            _ => NO_ANSWER,
        };
        Self { code, text: error.to_string() }
    }
}

impl From<RelayError> for Failure {
    fn from(error: RelayError) -> Self {
        match error {
            RelayError::Client(error) => error.into(),
            error => Self::no_answer(error),
        }
    }
}
