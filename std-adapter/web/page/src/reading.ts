import { plain } from './ansi';
import { oneLine } from './text';

/** What a device's text means on an axis; or why it has no place there. */
export type Reading = { value: number; unit: string; note?: string } | { why: string };

/** Longer texts are no readings. */
const LONGEST = 80;
/** The space between two values of an axis must be a number, too. */
const BEYOND = 1e300;
/** A unit has no digits, except as a power: `m²`, `m^2`. The text `3V3` names a rail, and is no reading. */
const UNIT = /^(?:[\p{L}%‰°'"$€£/µμΩ](?:[\p{L}%‰°/·*()²³⁻¹-]|\^-?\d){0,11})(?: [\p{L}%°]{1,12})?$/u;
const BASED = /^([+-]?)(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+)\s*(\D*)$/;
const DECIMAL = /^([+-]?)((?:\d[\d.,'_\u00a0\u202f ]*)?\d[.,]?|[.,]\d+)(?:[eE]([+-]?\d{1,4})(?![\p{L}\d]))?\s*(.*)$/u;
const STATES = new Map<string, number>([...['true', 'on', 'high', 'yes'].map((word) => [word, 1] as const), ...['false', 'off', 'low', 'no'].map((word) => [word, 0] as const)]);

/** Reads a number as devices write it: with a unit, with a decimal comma, in hexadecimal, or as a state such as `on`. */
export function reading(text: string): Reading {
  const own = plain(text).trim();
  const said = `“${oneLine(own, 40)}”`;
  const bare = own.replaceAll('\u2212', '-');
  if (bare === '') return { why: 'the text is empty' };
  if (bare.startsWith('{') || bare.startsWith('[')) return { why: `${said} has several values` };
  if (bare.length > LONGEST) return { why: `${said} is a text` };
  const state = STATES.get(bare.toLowerCase());
  if (state !== undefined) return { value: state, unit: '' };
  const no = { why: `${said} is no number` };
  const based = BASED.exec(bare);
  if (based) return isUnit(based[3] as string) ? bounded((based[1] === '-' ? -1 : 1) * Number((based[2] as string).replaceAll('_', '')), based[3] as string, said) : no;
  const found = DECIMAL.exec(bare);
  if (!found || !isUnit(found[4] as string)) return no;
  const digits = plainNumber(found[2] as string);
  if (digits === null) return no;
  const value = Number(`${found[1]}${digits}${found[3] ? `e${found[3]}` : ''}`);
  const read = bounded(value, found[4] as string, said);
  return 'value' in read && /^\d{1,3},\d{3}$/.test(found[2] as string) ? { ...read, note: `${said} is read as ${value}` } : read;
}

function bounded(value: number, unit: string, said: string): Reading {
  return Math.abs(value) < BEYOND ? { value, unit } : { why: `${said} is beyond what an axis can have` };
}

function isUnit(text: string): boolean {
  return text === '' || UNIT.test(text);
}

/** Digits with marks, as JavaScript reads them: a comma is a decimal mark, unless groups of three digits say otherwise. */
function plainNumber(text: string): string | null {
  const whole = /^\d{1,3}(?:(['_\u00a0\u202f ])\d{3})(?:\1\d{3})*(?=[.,]|$)/.exec(text);
  const digits = whole ? text.replaceAll(whole[1] as string, '') : text;
  if (/^\d*[.,]?\d*$/.test(digits)) return digits.replace(',', '.');
  if (/^\d{1,3}(?:,\d{3})+(?:\.\d*)?$/.test(digits)) return digits.replaceAll(',', '');
  if (/^\d{1,3}(?:\.\d{3})+(?:,\d*)?$/.test(digits) && (digits.includes(',') || digits.split('.').length > 2)) return digits.replaceAll('.', '').replace(',', '.');
  return null;
}

const PREFIXES: Record<string, number> = { p: -12, n: -9, u: -6, µ: -6, μ: -6, m: -3, '': 0, k: 3, K: 3, M: 6, G: 9 };
const BASES = ['V', 'A', 'W', 'Ω', 'Ohm', 'ohm', 'Hz', 'F', 'H', 's', 'J', 'Pa', 'bar', 'g', 'N', 'T', 'lx', 'C', 'S', 'm', 'Ah', 'Wh', 'VA'];

/** By what a value in the unit `from` is multiplied to be one in the unit `to`: 10 to this power. Null where they differ. */
export function conversion(from: string, to: string): number | null {
  if (from === to || from === '') return 0;
  const [a, b] = [split(from), split(to)];
  return a && b && a.base === b.base ? a.power - b.power : null;
}

function split(unit: string): { base: string; power: number } | null {
  for (const base of BASES) {
    if (!unit.endsWith(base)) continue;
    const power = PREFIXES[unit.slice(0, unit.length - base.length)];
    if (power !== undefined) return { base: base === 'Ohm' || base === 'ohm' ? 'Ω' : base, power };
  }
  return null;
}

/** Units that outputs carry in their names. */
const NAMED: [RegExp, string][] = [
  [/(^|_)(milli-?volts?|mv)$/i, 'mV'],
  [/(^|_)(volts?|voltage|v)$/i, 'V'],
  [/(^|_)(micro-?amp(ere)?s?|ua)$/i, 'µA'],
  [/(^|_)(milli-?amp(ere)?s?|ma)$/i, 'mA'],
  [/(^|_)(amp(ere)?s?|current_a)$/i, 'A'],
  [/(^|_)(milli-?watts?|mw)$/i, 'mW'],
  [/(^|_)watts?$/i, 'W'],
  [/(^|_)ohms?$/i, 'Ω'],
  [/(^|_)(celsius|degc|temp_c)$/i, '°C'],
  [/(^|_)(kilo-?hertz|khz)$/i, 'kHz'],
  [/(^|_)(mega-?hertz|mhz)$/i, 'MHz'],
  [/(^|_)(hertz|hz)$/i, 'Hz'],
  [/(^|_)(percent|pct)$/i, '%'],
  [/(^|_)(milliseconds?|ms)$/i, 'ms'],
  [/(^|_)(microseconds?|us)$/i, 'µs'],
  [/(^|_)(seconds?|secs?)$/i, 's'],
  [/(^|_)bytes$/i, 'B'],
];

/** The unit that an output's name says, such as `volts` or `uptime_ms`; empty if it says none. */
export function unitOfName(output: string): string {
  return NAMED.find(([name]) => name.test(output))?.[1] ?? '';
}
