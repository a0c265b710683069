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

/** Steps of a time axis, in seconds. */
export const TIME_STEPS = [...[-3, -2, -1].flatMap((exponent) => [1, 2, 5].map((digit) => Number(`${digit}e${exponent}`))), 1, 2, 5, 10, 15, 20, 30, ...[1, 2, 5, 10, 15, 20, 30].map((minutes) => minutes * 60), ...[1, 2, 3, 4, 6, 8, 12].map((hours) => hours * 3600), ...[1, 2, 4, 7, 14, 28, 91, 182, 365].map((days) => days * 86_400)];

/** The room that a label takes, in pixels: times with milliseconds are longer. */
export function timeSpace(range: number, size: number): number {
  return (range * 66) / size > 0.5 ? 66 : 92;
}

/** Times on an axis: those of the clock in these steps; where there are fewer than two, the first and the last one. */
export function timeMarks(min: number, max: number, step: number): number[] {
  const marks: number[] = [];
  const day = new Date(min * 1000);
  day.setHours(0, 0, 0, 0);
  if (step >= 86_400) {
    for (; day.getTime() / 1000 <= max && marks.length < 100; day.setDate(day.getDate() + Math.round(step / 86_400))) if (day.getTime() / 1000 >= min) marks.push(day.getTime() / 1000);
  } else {
    const midnight = day.getTime() / 1000;
    for (let at = Math.ceil((min - midnight) / step - 1e-6); marks.length < 100; at++) {
      const mark = Math.round((midnight + at * step) * 1000) / 1000;
      if (mark > max) break;
      marks.push(mark);
    }
  }
  return marks.length >= 2 ? marks : [min, max];
}

/** Times with the digits that tell them apart; the date stands below the first one, and where it changes. */
export function timeLabels(marks: number[]): string[] {
  const two = (value: number) => String(value).padStart(2, '0');
  const dates = marks.map((mark) => new Date(Math.round(mark * 1000)));
  const hasMilliseconds = dates.some((date) => date.getMilliseconds() !== 0);
  const hasSeconds = hasMilliseconds || dates.some((date) => date.getSeconds() !== 0) || ((marks.at(-1) ?? 0) - (marks[0] ?? 0)) / marks.length < 60;
  const isOfDays = dates.length > 1 && dates.every((date) => date.getHours() === 0 && date.getMinutes() === 0 && !hasSeconds);
  let before = '';
  return dates.map((date) => {
    const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    if (isOfDays) return day;
    const time = `${two(date.getHours())}:${two(date.getMinutes())}${hasSeconds ? `:${two(date.getSeconds())}` : ''}${hasMilliseconds ? `.${String(date.getMilliseconds()).padStart(3, '0')}` : ''}`;
    const label = day === before ? time : `${time}\n${day}`;
    before = day;
    return label;
  });
}
