//! The two kinds of processors, and loops over bytes in the form that a Cortex-M0+ runs fastest.

/// Whether this is a processor of 64 bits: loops over bytes go by words of eight, and functions are inlined for speed. The others are taken
/// for microcontrollers: they have no unaligned words, little flash and a small stack.
///
/// Both ways of a loop are compiled on each; the one that is not taken is left out of the image.
pub(crate) const BY_WORDS: bool = cfg!(target_pointer_width = "64");

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
