//! Bytes as hexadecimal text: `9f 00 00` in arguments and outputs.

use core::fmt;

use rigline::{Context, Failure};
use serde::{Serialize, Serializer};

use super::bad_argument;
use crate::instruments::TRANSFER_LIMIT;

/// The bytes of a transfer.
pub(super) struct Bytes {
    memory: [u8; TRANSFER_LIMIT],
    length: usize,
}

impl Bytes {
    /// So many zeros; those beyond the limit are left out.
    #[cfg(feature = "i2c")]
    pub(super) fn zeros(length: u16) -> Self {
        Self { memory: [0; TRANSFER_LIMIT], length: usize::from(length).min(TRANSFER_LIMIT) }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        self.memory.get(..self.length).unwrap_or_default()
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory.get_mut(..self.length).unwrap_or_default()
    }

    /// The bytes of an argument: two hexadecimal digits each, with or without a space between bytes.
    #[inline(never)]
    pub(super) fn of_argument(name: &str, text: &str, cx: &mut Context<'_>) -> Result<Self, Failure> {
        let mut bytes = Self { memory: [0; TRANSFER_LIMIT], length: 0 };
        let mut count = 0usize;
        let mut rest = text.trim_ascii();
        while !rest.is_empty() {
            let byte = rest.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
            let Some(byte) = byte.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
                let at = rest.chars().next().unwrap_or_default();
                return Err(bad_argument(
                    cx,
                    format_args!(
                        "args.{name}: byte {} begins with `{at}`: expected two hexadecimal digits, as in `9f 00`",
                        count + 1
                    ),
                ));
            };
            if let Some(place) = bytes.memory.get_mut(count) {
                *place = byte;
                bytes.length = count + 1;
            }
            count += 1;
            rest = rest.get(2..).unwrap_or_default().trim_ascii_start();
        }
        if count > TRANSFER_LIMIT {
            return Err(bad_argument(
                cx,
                format_args!("args.{name}: {count} bytes are too many: the limit is {TRANSFER_LIMIT}"),
            ));
        }
        Ok(bytes)
    }
}

/// Bytes as a text, such as `ef 40 15`.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for byte in self.0 {
            write!(f, "{separator}{byte:02x}")?;
            separator = " ";
        }
        Ok(())
    }
}

impl Serialize for Hex<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
