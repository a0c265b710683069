//! How a device's clock relates to the host's.

/// The offsets that readings of a device's clock allow: host's time = device's time + offset.
///
/// A reading of D milliseconds in a reply was taken between the request's and the reply's time S
/// and R on the host's clock. The device cuts its time down to whole units, so that its clock was
/// in [D, D + resolution): the offset is in [S − D − resolution, R − D].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Offset {
    least: f64,
    most: f64,
    readings: u32,
    last: f64,
    /// How often the device was reset, which starts its clock again.
    resets: u32,
}

impl Offset {
    pub(super) fn new(sent: f64, received: f64, device: f64, resolution: f64) -> Self {
        Self { least: sent - device - resolution, most: received - device, readings: 1, last: device, resets: 0 }
    }

    pub(super) fn add(&mut self, sent: f64, received: f64, device: f64, resolution: f64) {
        let new = Self::new(sent, received, device, resolution);
        let (least, most) = (self.least.max(new.least), self.most.min(new.most));
        let (readings, resets) = (self.readings + 1, self.resets);
        *self = if device < self.last {
            Self { resets: resets + 1, ..new }
        } else if least <= most {
            Self { least, most, readings, last: device, resets }
        } else {
            // The clocks run at different speeds: the last reading counts.
            Self { readings, resets, ..new }
        };
    }

    pub(super) fn to_json(self) -> serde_json::Value {
        let rounded = |ms: f64| (ms * 1000.0).round() / 1000.0;
        serde_json::json!({
            "offset_ms": rounded(f64::midpoint(self.least, self.most)),
            "uncertainty_ms": rounded((self.most - self.least) / 2.0),
            "readings": self.readings,
            "resets": self.resets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reading_narrows_the_offset() {
        // The device's clock is 1000.4 ms behind the host's, and shows whole milliseconds.
        let device = |host: f64| (host - 1000.4).floor();
        let mut offset = Offset::new(1500.0, 1520.0, device(1510.0), 1.0);
        for (sent, taken, received) in [(1600.0, 1600.5, 1601.0), (1700.0, 1703.0, 1730.0)] {
            offset.add(sent, received, device(taken), 1.0);
            assert!(offset.least <= 1000.4 && 1000.4 <= offset.most, "{offset:?}");
        }
        assert!(offset.most - offset.least <= 2.0, "{offset:?}");
        assert_eq!((offset.readings, offset.resets), (3, 0));
        // It was reset.
        offset.add(2000.0, 2002.0, 5.0, 1.0);
        assert_eq!((offset.readings, offset.resets), (1, 1));
        assert!(offset.least <= 1996.0 && offset.most >= 1996.0, "{offset:?}");
    }
}
