//! The search for the end of a line.

use super::{CR, LF, LineEnds};
use crate::bytes::BY_WORDS;

/// Where the first line end is.
pub(super) fn find(bytes: &[u8], ends: LineEnds) -> Option<usize> {
    match ends {
        LineEnds::Lf if BY_WORDS => find_by_block::<false>(bytes),
        LineEnds::Serial if BY_WORDS => find_by_block::<true>(bytes),
        LineEnds::Lf | LineEnds::Serial => find_by_byte(bytes, ends),
    }
}

/// How many bytes have no LF among them for certain: all of them, or those before a block that is to be searched.
#[inline(always)]
pub(super) fn clear_length(bytes: &[u8]) -> usize {
    let rest = after_clear_blocks::<64, false>(bytes);
    // What is left behind the last whole block is looked at with a part of that.
    if rest.len() < 64 && bytes.last_chunk::<64>().is_some_and(is_clear::<64, false>) {
        return bytes.len();
    }
    bytes.len().wrapping_sub(rest.len())
}

/// Whole blocks by a test that the compiler turns into vector instructions, large ones and then small ones; then words. The last word
/// may overlap what was looked at before.
fn find_by_block<const SERIAL: bool>(bytes: &[u8]) -> Option<usize> {
    let rest = after_clear_blocks::<16, SERIAL>(after_clear_blocks::<64, SERIAL>(bytes));
    let mut at = bytes.len().wrapping_sub(rest.len());
    let (words, tail) = rest.as_chunks::<8>();
    for word in words {
        if let Some(n) = find_in_word::<SERIAL>(*word) {
            return Some(at.wrapping_add(n));
        }
        at = at.wrapping_add(8);
    }
    if tail.is_empty() {
        return None;
    }
    match bytes.last_chunk::<8>() {
        Some(word) => find_in_word::<SERIAL>(*word).map(|n| bytes.len().wrapping_sub(8).wrapping_add(n)),
        None => tail.iter().position(|byte| is_line_end::<SERIAL>(*byte)),
    }
}

/// The rest from the first block of `N` that has a line end in it, or that is not whole.
#[inline(always)]
fn after_clear_blocks<const N: usize, const SERIAL: bool>(mut bytes: &[u8]) -> &[u8] {
    while let Some((block, after)) = bytes.split_first_chunk::<N>()
        && is_clear::<N, SERIAL>(block)
    {
        bytes = after;
    }
    bytes
}

#[inline(always)]
fn is_clear<const N: usize, const SERIAL: bool>(block: &[u8; N]) -> bool {
    !block.iter().fold(false, |any, byte| any | is_line_end::<SERIAL>(*byte))
}

#[inline(always)]
fn is_line_end<const SERIAL: bool>(byte: u8) -> bool {
    byte == LF || (SERIAL && byte == CR)
}

#[inline(always)]
fn find_in_word<const SERIAL: bool>(word: [u8; 8]) -> Option<usize> {
    let word = u64::from_le_bytes(word);
    let mut ends = zero_bytes(word ^ (u64::from(LF) * EACH_BYTE));
    if SERIAL {
        ends |= zero_bytes(word ^ (u64::from(CR) * EACH_BYTE));
    }
    if ends == 0 { None } else { Some((ends.trailing_zeros() / 8) as usize) }
}

const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

/// The top bit of the lowest byte that is zero; those above it may be wrong.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(EACH_BYTE) & !word & (EACH_BYTE << 7)
}

/// One comparison a byte: nearly all bytes are above CR. A microcontroller has no unaligned words.
pub(super) fn find_by_byte(bytes: &[u8], ends: LineEnds) -> Option<usize> {
    let mut rest = bytes;
    loop {
        rest = rest.get(crate::bytes::count_while(rest, |byte| byte > CR)..).unwrap_or_default();
        match rest {
            [] => return None,
            [byte, ..] if is_end(*byte, ends) => return Some(bytes.len().wrapping_sub(rest.len())),
            [_, after @ ..] => rest = after,
        }
    }
}

fn is_end(byte: u8, ends: LineEnds) -> bool {
    byte == LF || (byte == CR && ends == LineEnds::Serial)
}
