//! Go's durations: the parser against a port of Go's own, in floats as there; and what is printed reads back equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rigline::GoDuration;

fuzz_target!(|data: &[u8]| {
    if let Some((nanos, _)) = data.split_first_chunk() {
        let duration = GoDuration::from_nanos(i64::from_le_bytes(*nanos));
        assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
    }
    let Ok(text) = str::from_utf8(data) else { return };
    let parsed = GoDuration::parse(text);
    assert_eq!(parsed.ok().map(GoDuration::as_nanos), go::parse_duration(text.as_bytes()), "{text:?}");
    if let Ok(duration) = parsed {
        assert_eq!(GoDuration::parse(&duration.to_string()), Ok(duration));
    }
});

/// `time.ParseDuration` of Go 1.22, step by step, but for its sum.
mod go {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub(crate) fn parse_duration(mut s: &[u8]) -> Option<i64> {
        let negative = match s {
            [b'-', rest @ ..] => {
                s = rest;
                true
            }
            [b'+', rest @ ..] => {
                s = rest;
                false
            }
            _ => false,
        };
        if s == b"0" {
            return Some(0);
        }
        if s.is_empty() {
            return None;
        }
        let mut d = 0_u64;
        while let [first, ..] = s {
            if !matches!(first, b'.' | b'0'..=b'9') {
                return None;
            }
            let before = s.len();
            let (mut v, rest) = leading_int(s)?;
            s = rest;
            let pre = before != s.len();
            let (mut f, mut scale, mut post) = (0, 1.0, false);
            if let [b'.', rest @ ..] = s {
                let before = rest.len();
                (f, scale, s) = leading_fraction(rest);
                post = before != s.len();
            }
            if !pre && !post {
                return None;
            }
            let length = s.iter().position(|c| matches!(c, b'.' | b'0'..=b'9')).unwrap_or(s.len());
            let (name, rest) = s.split_at(length);
            s = rest;
            let unit: u64 = match name {
                b"ns" => 1,
                b"us" | [0xC2, 0xB5, b's'] | [0xCE, 0xBC, b's'] => 1_000,
                b"ms" => 1_000_000,
                b"s" => 1_000_000_000,
                b"m" => 60_000_000_000,
                b"h" => 3_600_000_000_000,
                _ => return None,
            };
            if v > (1 << 63) / unit {
                return None;
            }
            v *= unit;
            if f > 0 {
                v += (f as f64 * (unit as f64 / scale)) as u64;
                if v > 1 << 63 {
                    return None;
                }
            }
            // Go's wraps, which makes 0 of twice 2^63; ours does not.
            d = d.checked_add(v)?;
            if d > 1 << 63 {
                return None;
            }
        }
        if negative {
            return Some(0_i64.wrapping_sub_unsigned(d));
        }
        i64::try_from(d).ok()
    }

    fn leading_int(s: &[u8]) -> Option<(u64, &[u8])> {
        let mut x = 0_u64;
        let mut rest = s;
        while let [c @ b'0'..=b'9', more @ ..] = rest {
            if x > (1 << 63) / 10 {
                return None;
            }
            x = x * 10 + u64::from(c - b'0');
            if x > 1 << 63 {
                return None;
            }
            rest = more;
        }
        Some((x, rest))
    }

    fn leading_fraction(s: &[u8]) -> (u64, f64, &[u8]) {
        let (mut x, mut scale, mut overflow) = (0_u64, 1.0, false);
        let mut rest = s;
        while let [c @ b'0'..=b'9', more @ ..] = rest {
            rest = more;
            if overflow {
                continue;
            }
            if x > ((1 << 63) - 1) / 10 {
                overflow = true;
                continue;
            }
            let y = x * 10 + u64::from(c - b'0');
            if y > 1 << 63 {
                overflow = true;
                continue;
            }
            x = y;
            scale *= 10.0;
        }
        (x, scale, rest)
    }
}
