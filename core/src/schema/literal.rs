//! The check of schemas that are written out, in constants: RFC 8259's grammar, since the checker's
//! own code cannot run there.

/// Whether `text` is a JSON object or a boolean on one line.
pub(super) const fn is_schema(text: &[u8]) -> bool {
    match text {
        b"true" | b"false" => true,
        [b'{', ..] => match const_value(text, 0) {
            Some(rest) => rest.is_empty(),
            None => false,
        },
        _ => false,
    }
}

const fn const_space(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}

const fn const_value(text: &[u8], depth: usize) -> Option<&[u8]> {
    if depth > 64 {
        return None;
    }
    match text {
        [b'"', rest @ ..] => const_string(rest),
        [b'{', rest @ ..] => const_container(rest, depth, true),
        [b'[', rest @ ..] => const_container(rest, depth, false),
        [b't', b'r', b'u', b'e', rest @ ..]
        | [b'f', b'a', b'l', b's', b'e', rest @ ..]
        | [b'n', b'u', b'l', b'l', rest @ ..] => Some(rest),
        _ => const_number(text),
    }
}

const fn const_container(text: &[u8], depth: usize, object: bool) -> Option<&[u8]> {
    let mut rest = const_space(text);
    match (rest, object) {
        ([b'}', after @ ..], true) | ([b']', after @ ..], false) => return Some(after),
        _ => {}
    }
    loop {
        if object {
            let [b'"', name @ ..] = rest else { return None };
            let Some(after) = const_string(name) else { return None };
            let [b':', after @ ..] = const_space(after) else { return None };
            rest = const_space(after);
        }
        let Some(after) = const_value(rest, depth + 1) else { return None };
        rest = const_space(after);
        match (rest, object) {
            ([b',', after @ ..], _) => rest = const_space(after),
            ([b'}', after @ ..], true) | ([b']', after @ ..], false) => return Some(after),
            _ => return None,
        }
    }
}

const fn const_string(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        text = match text {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => rest,
            [b'\\', b'u', a, b, c, d, rest @ ..]
                if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() && c.is_ascii_hexdigit() && d.is_ascii_hexdigit() =>
            {
                rest
            }
            [] | [0..0x20 | b'\\', ..] => return None,
            [_, rest @ ..] => rest,
        };
    }
}

const fn const_number(text: &[u8]) -> Option<&[u8]> {
    let unsigned = match text {
        [b'-', rest @ ..] => rest,
        _ => text,
    };
    let Some(mut rest) = numeric(unsigned) else { return None };
    if let [b'.', fraction @ ..] = rest {
        let Some(after) = const_digits(fraction) else { return None };
        rest = after;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let digits = match exponent {
            [b'+' | b'-', digits @ ..] => digits,
            _ => exponent,
        };
        let Some(after) = const_digits(digits) else { return None };
        rest = after;
    }
    Some(rest)
}

const fn const_digits(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    while let [b'0'..=b'9', more @ ..] = rest {
        rest = more;
    }
    if rest.len() == text.len() { None } else { Some(rest) }
}

/// A number without leading zeros; returns what follows.
pub(crate) const fn numeric(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    let mut length = 0;
    while let [b'0'..=b'9', more @ ..] = rest {
        rest = more;
        length += 1;
    }
    if length == 0 || length > 1 && matches!(text, [b'0', ..]) { None } else { Some(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_json_on_one_line() {
        for good in ["true", "{}", r#"{"a":[1,-0.5e+3,"\u00e9\n",null,{}], "b" : false}"#] {
            assert!(is_schema(good.as_bytes()), "{good}");
        }
        for bad in ["", "1", "[]", "{", "{\n}", r#"{"a":01}"#, r#"{"a":1,}"#, r#"{"a" 1}"#, r#"{"\x":1}"#, "{} "] {
            assert!(!is_schema(bad.as_bytes()), "{bad}");
        }
    }
}
