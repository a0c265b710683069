/** A number of a JSON text that a JavaScript number cannot hold, with all its digits. */
export class Digits {
  constructor(readonly text: string) {}

  toString(): string {
    return this.text;
  }
}

/** Reads a JSON text without a loss: a number whose text differs from what JavaScript makes of it becomes `Digits`. */
export function parseExact(json: string): unknown {
  const keep = (_: string, value: unknown, context?: { source?: string }) =>
    typeof value === 'number' && context?.source !== undefined && context.source !== String(value) ? new Digits(context.source) : value;
  return JSON.parse(json, keep as (key: string, value: unknown) => unknown) as unknown;
}

/** The JSON text of a value that `parseExact` gave. */
export function jsonOf(value: unknown): string {
  if (value instanceof Digits) return value.text;
  if (Array.isArray(value)) return `[${value.map(jsonOf).join(',')}]`;
  if (isObject(value)) return `{${Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}:${jsonOf(member)}`).join(',')}}`;
  return JSON.stringify(value) ?? 'null';
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Digits);
}

/** A number of either kind. */
export function isNumeric(value: unknown): value is number | Digits {
  return typeof value === 'number' || value instanceof Digits;
}
