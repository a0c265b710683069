//! `rigline::duration`.

use core::hint::black_box;
use core::str::FromStr;
use core::time::Duration;

use rigline::GoDuration;

use crate::program::{keep, show, text};

pub(crate) fn all() {
    match GoDuration::parse(text()) {
        Ok(duration) => {
            show(&duration);
            keep(duration.as_nanos());
            keep(duration > GoDuration::from_nanos(black_box(1)));
            if let Err(error) = Duration::try_from(duration) {
                show(&error);
            }
        }
        Err(error) => {
            keep(error.as_str());
            show(&error);
        }
    }
    keep(GoDuration::from_str(text()));
    keep(GoDuration::try_from(Duration::new(black_box(1), black_box(2) & 0xFFFF)));
}
