//! Division and roots of large integers in little code: those of the compiler and of `core` take a kilobyte of flash each on a
//! processor without a 64-bit division.

/// The quotient, which must fit 64 bits, and the rest. Of a division by 0, both are 0.
pub(crate) const fn divided(dividend: u128, divisor: u64) -> (u64, u64) {
    if divisor == 0 {
        return (0, 0);
    }
    let (mut quotient, mut rest) = (0u64, 0u64);
    let mut bit = u128::BITS;
    while bit > 0 {
        bit -= 1;
        // Where the rest would not fit, the divisor fits into it.
        let overflows = rest >> 63 == 1;
        rest = rest << 1 | (dividend >> bit & 1) as u64;
        quotient <<= 1;
        if overflows || rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    (quotient, rest)
}

/// The quotient, rounded to the nearest integer, half up.
pub(crate) const fn rounded(dividend: u128, divisor: u64) -> u64 {
    let (quotient, rest) = divided(dividend, divisor);
    // rest >= divisor - rest is 2 · rest >= divisor without an overflow.
    if divisor > 0 && rest >= divisor - rest { quotient.saturating_add(1) } else { quotient }
}

/// The square root, rounded down.
#[cfg(feature = "statistics")]
pub(crate) const fn root(square: u64) -> u64 {
    let (mut root, mut rest) = (0u64, square);
    let mut bit = 1 << 62;
    while bit > 0 {
        // (root + bit)² = root² + bit · (2 · root + bit), with both scaled by the bit's own weight.
        if rest >= root + bit {
            rest -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
        bit >>= 2;
    }
    root
}

#[cfg(all(test, feature = "values"))]
mod tests {
    extern crate std;

    use super::{divided, root, rounded};

    /// Numbers at and around the powers of 2, and some between them.
    fn numbers() -> impl Iterator<Item = u64> {
        (0..64).flat_map(|bit| {
            let power = 1u64 << bit;
            [power - 1, power, power + 1, power | power.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1]
        })
    }

    #[test]
    fn quotients_are_those_of_the_compiler() {
        for high in numbers().step_by(13) {
            for low in numbers() {
                for divisor in numbers().filter(|divisor| *divisor > high) {
                    let dividend = u128::from(high) << 64 | u128::from(low);
                    let (quotient, rest) = divided(dividend, divisor);
                    let exact = (dividend / u128::from(divisor), dividend % u128::from(divisor));
                    assert_eq!((u128::from(quotient), u128::from(rest)), exact, "{dividend} / {divisor}");
                }
            }
        }
        assert_eq!((divided(5, 0), rounded(5, 0)), ((0, 0), 0));
    }

    #[test]
    fn rounding_is_half_up() {
        for (dividend, divisor, quotient) in [
            (0, 2, 0),
            (1, 2, 1),
            (1, 3, 0),
            (2, 3, 1),
            (7, 2, 4),
            (u128::from(u64::MAX), 1, u64::MAX),
            (1 << 63, u64::MAX, 1),
        ] {
            assert_eq!(rounded(dividend, divisor), quotient, "{dividend} / {divisor}");
        }
    }

    #[test]
    fn roots_are_those_of_the_standard_library() {
        let squares = (0..=u64::from(u32::MAX)).step_by(65_537).map(|root| root * root);
        for number in numbers()
            .chain(0..10_000)
            .chain(squares.flat_map(|square| [square.saturating_sub(1), square]))
            .chain([u64::MAX])
        {
            assert_eq!(root(number), number.isqrt(), "{number}");
        }
    }
}
