/** Numbers as JSON has them, with all their digits. */
export interface Decimal {
  /** The value is `digits / 10 ** scale`. */
  digits: bigint;
  scale: number;
}

/** Larger exponents are refused: their digits would fill the memory. */
const EXPONENT_LIMIT = 400;
const NUMBER = /^-?(?:0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/;

export function isNumber(text: string): boolean {
  return NUMBER.test(text);
}

export function decimal(text: string): Decimal | null {
  const found = NUMBER.exec(text);
  if (!found || text.length > 10_000) return null;
  const exponent = Number(found[2] ?? '0');
  if (Math.abs(exponent) > EXPONENT_LIMIT) return null;
  const mantissa = BigInt((text.split(/[eE]/)[0] as string).replace('.', ''));
  const scale = (found[1]?.length ?? 0) - exponent;
  return scale >= 0 ? { digits: mantissa, scale } : { digits: mantissa * 10n ** BigInt(-scale), scale: 0 };
}

export function compare(a: Decimal, b: Decimal): number {
  const [left, right] = aligned(a, b);
  return left < right ? -1 : left > right ? 1 : 0;
}

export function isMultiple(value: Decimal, of: Decimal): boolean {
  const [left, right] = aligned(value, of);
  return right === 0n || left % right === 0n;
}

export function isInteger(value: Decimal): boolean {
  return value.digits % 10n ** BigInt(value.scale) === 0n;
}

function aligned(a: Decimal, b: Decimal): [bigint, bigint] {
  const scale = Math.max(a.scale, b.scale);
  return [a.digits * 10n ** BigInt(scale - a.scale), b.digits * 10n ** BigInt(scale - b.scale)];
}
