/** A range of values, and the marks on its axis. */
export interface Scale {
  min: number;
  max: number;
  ticks: { value: number; label: string }[];
}

/** Ranges smaller than this are widened to it: steps between their values would be no numbers. */
const SMALLEST = 1e-300;
/** What has at most this many characters stands without an exponent. */
const PLAIN = 7;

/** A scale around these values, with about `count` marks, each labelled with the digits that tell it from the next. */
export function scaleOf(least: number, most: number, count: number): Scale {
  const size = Math.max(Math.abs(least), Math.abs(most));
  let [min, max] = [least, most];
  if (!(least <= most)) [min, max] = [0, 1];
  else if (least === most) {
    // A constant stands in the middle.
    const around = Math.max(size * 0.05, size === 0 ? 1 : SMALLEST);
    [min, max] = [least - around, most + around];
  } else {
    const padding = (most - least) * 0.07;
    // Doubles have no values between: the range must have room for marks.
    const extra = Math.max(padding, SMALLEST, size * 2 ** -46);
    [min, max] = [least - extra, most + extra];
    // Zero is a good edge where it is near.
    if (least >= 0 && min < 0) min = 0;
    if (most <= 0 && max > 0) max = 0;
  }
  // Halves, as the whole could be beyond all numbers.
  const rough = (max / 2 - min / 2) / (Math.max(2, count) / 2);
  let exponent = Math.floor(Math.log10(rough));
  let mantissa = 1;
  const wanted = rough / power(exponent);
  if (wanted > 5) [mantissa, exponent] = [1, exponent + 1];
  else if (wanted > 2) mantissa = 5;
  else if (wanted > 1) mantissa = 2;
  const step = mantissa * power(exponent);
  const marks: { value: number; digits: bigint }[] = [];
  const last = Math.floor(max / step);
  for (let at = Math.ceil(min / step); at <= last && marks.length < 50; at++) {
    const value = exponent < 0 && exponent > -300 ? (at * mantissa) / 10 ** -exponent : at * step;
    marks.push({ value: value === 0 ? 0 : value, digits: BigInt(at) * BigInt(mantissa) });
  }
  const [plain, scientific] = [plainLabel, scientificLabel].map((label) => marks.map(({ digits }) => label(digits, exponent))) as [string[], string[]];
  const widest = (labels: string[]) => labels.reduce((most, { length }) => Math.max(most, length), 0);
  const labels = widest(plain) <= Math.max(PLAIN, widest(scientific)) ? plain : scientific;
  return { min, max, ticks: marks.map(({ value }, at) => ({ value, label: labels[at] as string })) };
}

function power(exponent: number): number {
  return Number(`1e${exponent}`);
}

/** The text of `digits` times ten to the power of `exponent`: exact, and with all digits of its step. */
function plainLabel(digits: bigint, exponent: number): string {
  const [sign, text] = signed(digits);
  if (exponent >= 0) return digits === 0n ? '0' : sign + text + '0'.repeat(exponent);
  const padded = text.padStart(1 - exponent, '0');
  return `${sign}${padded.slice(0, exponent)}.${padded.slice(exponent)}`;
}

function scientificLabel(digits: bigint, exponent: number): string {
  const [sign, text] = signed(digits);
  if (digits === 0n) return '0';
  return `${sign}${text[0]}${text.length > 1 ? `.${text.slice(1)}` : ''}e${exponent + text.length - 1}`;
}

function signed(digits: bigint): [string, string] {
  return digits < 0n ? ['-', String(-digits)] : ['', String(digits)];
}

/** Where a value lies in a scale, from 0 to 1. */
export function placeIn(scale: Scale, value: number): number {
  return (value / 2 - scale.min / 2) / (scale.max / 2 - scale.min / 2);
}
