// Numbers of a device: outputs are texts, and keep all their digits.

import { RiglineError } from './rig.js';

/** The longest number that is compared as one, in characters. */
const DIGIT_LIMIT = 10_000;
const DECIMAL = /^([+-]?)(\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,17}))?$/;

/** The text without JSON's white space at its ends. */
const trimmed = (text) => text.replace(/^[ \t\r\n]+|[ \t\r\n]+$/g, '');

/**
 * The parts of a decimal number: its sign, its digits without zeros at their ends, and the power of ten that 0.DIGITS is multiplied by.
 * Null for what is no number, such as `inf`, `0x10` and `1_000`.
 */
function partsOf(value) {
  const text = trimmed(String(value));
  const found = text.length <= DIGIT_LIMIT ? DECIMAL.exec(text) : null;
  if (!found) return null;
  const [, sign, mantissa, exponent = '0'] = found;
  const [whole, fraction = ''] = mantissa.split('.');
  const significant = (whole + fraction).replace(/^0+/, '');
  const zeros = whole.length + fraction.length - significant.length;
  const digits = significant.replace(/0+$/, '');
  if (digits === '') return { sign: 0, digits, power: 0n };
  return { sign: sign === '-' ? -1 : 1, digits, power: BigInt(exponent) + BigInt(whole.length - zeros) };
}

/** Below zero, zero or above, as the first number is below the second one, equal to it or above. */
function order(one, other) {
  if (one.sign !== other.sign) return one.sign - other.sign;
  if (one.power !== other.power) return one.power < other.power ? -one.sign : one.sign;
  if (one.digits === other.digits) return 0;
  return one.digits < other.digits ? -one.sign : one.sign;
}

/**
 * The number that an output's text is, as evals read it: JSON's, and what instruments write, such as `+3.30E+00` and `007`. Throws a RiglineError
 * for what is none, such as `inf`, `0x10`, `1_000` and an empty text. The number of JavaScript may have less digits than the text: see `within`.
 */
export function number(text) {
  if (typeof text === 'string' && partsOf(text)) return Number(trimmed(text));
  const shown = text === undefined ? 'an output that is not there' : JSON.stringify(text)?.slice(0, 80);
  throw new RiglineError('invalid', `${shown} is not a number`);
}

/**
 * Whether an output's text is a number from `low` to `high`, its limits included, with all its digits. Null stands for no limit. What is no number
 * is within no limits. A limit is a number, or a text where a number of JavaScript has too few digits.
 */
export function within(text, low = null, high = null) {
  const limit = (name, value) => {
    const parts = value === null ? null : partsOf(value);
    if (value !== null && !parts) throw new TypeError(`${name} must be a number, not ${value}`);
    return parts;
  };
  const [least, most] = [limit('low', low), limit('high', high)];
  const found = typeof text === 'string' ? partsOf(text) : null;
  return found !== null && (!least || order(found, least) >= 0) && (!most || order(found, most) <= 0);
}
