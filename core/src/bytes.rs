//! Loops over bytes, in the form that a Cortex-M0+ runs fastest.

/// How many bytes come before the first that is not to be skipped.
///
/// Four a turn, each with a way out of its own: a condition over all four would be computed whole.
#[inline(always)]
pub(crate) fn count_while(bytes: &[u8], skip: impl Fn(u8) -> bool) -> usize {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut at = 0_usize;
    for [a, b, c, d] in words {
        if !skip(*a) {
            return at;
        }
        if !skip(*b) {
            return at.wrapping_add(1);
        }
        if !skip(*c) {
            return at.wrapping_add(2);
        }
        if !skip(*d) {
            return at.wrapping_add(3);
        }
        at = at.wrapping_add(4);
    }
    for byte in rest {
        if !skip(*byte) {
            break;
        }
        at = at.wrapping_add(1);
    }
    at
}
