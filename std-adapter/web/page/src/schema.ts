import { compare, decimal, isInteger, isMultiple, isNumber } from './decimal';
import { oneLine, plural } from './text';

/** What a manifest says of a value; members that this page does not know are left to the extension. */
export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  items?: Schema;
  minItems?: number;
  maxItems?: number;
  uniqueItems?: boolean;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: unknown;
  [member: string]: unknown;
}

/** What stands in a form's fields: a text, or those of the fields below. */
export type Draft = string | Draft[] | { [name: string]: Draft };
export type Form = 'text' | 'integer' | 'number' | 'boolean' | 'choice' | 'object' | 'list' | 'json';
export interface Collected {
  /** JSON text; null where it is left out or cannot be sent. */
  json: string | null;
  /** By path, such as `place.city` or `days.0`. */
  errors: Map<string, string>;
}

const COMBINATORS = ['$ref', 'oneOf', 'anyOf', 'allOf', 'not', 'if', 'patternProperties', 'prefixItems'];
/** How deep forms go; what is deeper is written as JSON. */
const DEEPEST = 6;

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function asSchema(value: unknown): Schema {
  return isObject(value) ? value : {};
}

/** How a value is entered. */
export function formOf(schema: Schema, depth = 0): Form {
  if (COMBINATORS.some((name) => Object.hasOwn(schema, name))) return 'json';
  if (Array.isArray(schema.enum) && schema.enum.length > 0 && schema.enum.length <= 1000) return 'choice';
  const types = typesOf(schema).filter((type) => type !== 'null');
  const canBeNull = typesOf(schema).includes('null');
  if (types.length !== 1) return 'json';
  const type = types[0];
  if (type === 'integer' || type === 'number' || type === 'boolean') return type;
  // `null` would be the text "null".
  if (canBeNull) return 'json';
  if (type === 'string') return 'text';
  if (depth >= DEEPEST) return 'json';
  if (type === 'object' && isObject(schema.properties) && Object.keys(schema.properties).length > 0) return 'object';
  if (type === 'array' && isObject(schema.items)) return 'list';
  return 'json';
}

export function emptyDraft(schema: Schema, depth = 0): Draft {
  const form = formOf(schema, depth);
  return form === 'object' ? {} : form === 'list' ? [] : '';
}

function typesOf(schema: Schema): string[] {
  const { type } = schema;
  return Array.isArray(type) ? type.filter((name) => typeof name === 'string') : typeof type === 'string' ? [type] : [];
}

/** What a field's limits are, in words. */
export function hints(schema: Schema): string[] {
  const found: string[] = [];
  const { minimum: min, maximum: max, exclusiveMinimum: above, exclusiveMaximum: below } = schema;
  if (typeof min === 'number' && typeof max === 'number') found.push(`From ${min} to ${max}.`);
  else if (typeof min === 'number') found.push(`At least ${min}.`);
  else if (typeof max === 'number') found.push(`At most ${max}.`);
  if (typeof above === 'number') found.push(`More than ${above}.`);
  if (typeof below === 'number') found.push(`Less than ${below}.`);
  if (typeof schema.multipleOf === 'number') found.push(`In steps of ${schema.multipleOf}.`);
  const { minLength, maxLength, minItems, maxItems } = schema;
  if (typeof minLength === 'number' && minLength > 0) found.push(`At least ${plural(minLength, 'character')}.`);
  if (typeof maxLength === 'number') found.push(`At most ${plural(maxLength, 'character')}.`);
  if (typeof schema.pattern === 'string') found.push(`Must match ${oneLine(schema.pattern, 80)}.`);
  if (typeof minItems === 'number' && minItems > 0) found.push(`At least ${plural(minItems, 'entry', 'entries')}.`);
  if (typeof maxItems === 'number') found.push(`At most ${plural(maxItems, 'entry', 'entries')}.`);
  if (Object.hasOwn(schema, 'default')) found.push(`Default: ${oneLine(JSON.stringify(schema.default), 80)}.`);
  return found;
}

export function typeName(schema: Schema): string {
  const types = typesOf(schema);
  return types.length === 0 ? 'any JSON value' : types.join(' or ');
}

/** The JSON text of a whole form. `fault` checks JSON that a person wrote. */
export function collect(schema: Schema, draft: Draft, fault: (json: string) => string | null): Collected {
  const errors = new Map<string, string>();
  const json = isObject(schema.properties)
    ? objectOf(schema, draft, true, '', 0, errors, fault)
    : '{}';
  return { json: errors.size === 0 ? json : null, errors };
}

type Fault = (json: string) => string | null;

function valueOf(schema: Schema, draft: Draft, required: boolean, path: string, depth: number, errors: Map<string, string>, fault: Fault): string | null {
  const form = formOf(schema, depth);
  if (form === 'object') return objectOf(schema, draft, required, path, depth, errors, fault);
  if (form === 'list') return listOf(schema, draft, required, path, depth, errors, fault);
  const text = typeof draft === 'string' ? draft : '';
  const refuse = (why: string) => {
    errors.set(path, why);
    return null;
  };
  if (form === 'text' ? text === '' : text.trim() === '') {
    if (!required) return null;
    if (form === 'text' && !(typeof schema.minLength === 'number' && schema.minLength > 0)) {
      return refuse('This argument is required. Type "" to send an empty text.');
    }
    return refuse('This argument is required.');
  }
  const json = form === 'text' ? JSON.stringify(text === '""' ? '' : text) : text.trim();
  if (form === 'integer' || form === 'number') {
    if (json === 'null' && typesOf(schema).includes('null')) return json;
    if (!isNumber(json)) return refuse(form === 'integer' ? 'This must be a whole number, such as 5.' : 'This must be a number, such as 2.5.');
    if (decimal(json) === null) return refuse('This number is too large to check.');
  } else if (form === 'json') {
    const why = fault(json);
    if (why !== null) return refuse(`This is not JSON: ${why}.`);
  }
  const value = parse(json);
  if (value === undefined) return refuse('This JSON cannot be checked: it is nested too deeply.');
  const why = check(schema, value, '');
  return why === null ? json.replace(/[\r\n]+/g, ' ') : refuse(why);
}

function objectOf(schema: Schema, draft: Draft, required: boolean, path: string, depth: number, errors: Map<string, string>, fault: Fault): string | null {
  const given = isObject(draft) ? (draft as { [name: string]: Draft }) : {};
  const needed = new Set(Array.isArray(schema.required) ? schema.required : []);
  const isBlank = blank(given);
  if (isBlank && !required) return null;
  const members: string[] = [];
  for (const [name, below] of Object.entries(schema.properties ?? {})) {
    const own = Object.hasOwn(given, name) ? (given[name] as Draft) : '';
    const json = valueOf(asSchema(below), own, needed.has(name), path === '' ? name : `${path}.${name}`, depth + 1, errors, fault);
    if (json !== null) members.push(`${JSON.stringify(name)}:${json}`);
  }
  return `{${members.join(',')}}`;
}

function listOf(schema: Schema, draft: Draft, required: boolean, path: string, depth: number, errors: Map<string, string>, fault: Fault): string | null {
  const given = Array.isArray(draft) ? draft : [];
  if (given.length === 0 && !required) return null;
  const elements = given.map((own, at) => valueOf(asSchema(schema.items), own, true, `${path}.${at}`, depth + 1, errors, fault));
  const json = `[${elements.join(',')}]`;
  if (!elements.includes(null)) {
    const why = check({ ...schema, items: undefined }, parse(json) ?? [], '');
    if (why !== null) errors.set(path, why);
  }
  return json;
}

function blank(draft: Draft): boolean {
  if (typeof draft === 'string') return draft.trim() === '';
  return Array.isArray(draft) ? draft.length === 0 : Object.values(draft).every(blank);
}

/** A number of a JSON text, with all its digits. */
class Digits {
  constructor(readonly text: string) {}
}

type Value = null | boolean | string | Digits | Value[] | { [name: string]: Value };

function parse(json: string): Value | undefined {
  const keep = (_: string, value: unknown, context?: { source?: string }) =>
    typeof value === 'number' ? new Digits(context?.source ?? String(value)) : value;
  try {
    return JSON.parse(json, keep as (key: string, value: unknown) => unknown) as Value;
  } catch {
    return undefined;
  }
}

function nameOf(value: Value): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (value instanceof Digits) return 'number';
  return typeof value;
}

function fits(type: string, value: Value): boolean {
  if (type === 'integer' && value instanceof Digits) {
    const number = decimal(value.text);
    return number === null || isInteger(number);
  }
  return nameOf(value) === type;
}

/** What is wrong with a value, in words; null where nothing is. */
function check(schema: Schema, value: Value, where: string): string | null {
  const at = where === '' ? 'This' : where;
  const types = typesOf(schema);
  if (types.length > 0 && !types.some((type) => fits(type, value))) {
    const wanted = types.map((type) => (type === 'integer' ? 'a whole number' : type === 'array' || type === 'object' ? `an ${type}` : `a ${type}`));
    return `${at} must be ${wanted.join(' or ')}.`;
  }
  const same = (other: unknown) => canonical(parse(JSON.stringify(other) ?? 'null') ?? null) === canonical(value);
  if (Array.isArray(schema.enum) && !schema.enum.some(same)) {
    return `${at} must be one of ${oneLine(schema.enum.map((one) => JSON.stringify(one)).join(', '), 200)}.`;
  }
  if (Object.hasOwn(schema, 'const') && !same(schema.const)) return `${at} must be ${oneLine(JSON.stringify(schema.const), 200)}.`;
  if (value instanceof Digits) return checkNumber(schema, value, at);
  if (typeof value === 'string') return checkText(schema, value, at);
  if (Array.isArray(value)) {
    if (typeof schema.minItems === 'number' && value.length < schema.minItems) return `${at} needs at least ${plural(schema.minItems, 'entry', 'entries')}.`;
    if (typeof schema.maxItems === 'number' && value.length > schema.maxItems) return `${at} takes at most ${plural(schema.maxItems, 'entry', 'entries')}.`;
    if (schema.uniqueItems === true && new Set(value.map(canonical)).size < value.length) return `${at} must not contain the same entry twice.`;
    if (isObject(schema.items)) {
      for (const [index, element] of value.entries()) {
        const why = check(schema.items, element, `${where === '' ? 'Entry' : `${where}, entry`} ${index + 1}`);
        if (why !== null) return why;
      }
    }
    return null;
  }
  if (isObject(value)) {
    const known = asSchema(schema.properties) as Record<string, Schema>;
    for (const name of Array.isArray(schema.required) ? schema.required : []) {
      if (!Object.hasOwn(value, name)) return `${at} needs the member ${oneLine(name, 80)}.`;
    }
    for (const [name, member] of Object.entries(value)) {
      if (Object.hasOwn(known, name)) {
        const why = check(asSchema(known[name]), member, `The member ${oneLine(name, 80)}`);
        if (why !== null) return why;
      } else if (schema.additionalProperties === false) {
        return `${at} has the member ${oneLine(name, 80)}, which does not exist here.`;
      }
    }
  }
  return null;
}

function checkNumber(schema: Schema, value: Digits, at: string): string | null {
  const number = decimal(value.text);
  if (number === null) return null;
  const limit = (name: 'minimum' | 'maximum' | 'exclusiveMinimum' | 'exclusiveMaximum' | 'multipleOf') => {
    const given = schema[name];
    return typeof given === 'number' ? decimal(String(given)) : null;
  };
  const [min, max, above, below, step] = [limit('minimum'), limit('maximum'), limit('exclusiveMinimum'), limit('exclusiveMaximum'), limit('multipleOf')];
  if (min && compare(number, min) < 0) return `${at} must be at least ${schema.minimum}.`;
  if (max && compare(number, max) > 0) return `${at} must be at most ${schema.maximum}.`;
  if (above && compare(number, above) <= 0) return `${at} must be more than ${schema.exclusiveMinimum}.`;
  if (below && compare(number, below) >= 0) return `${at} must be less than ${schema.exclusiveMaximum}.`;
  if (step && !isMultiple(number, step)) return `${at} must be a multiple of ${schema.multipleOf}.`;
  return null;
}

function checkText(schema: Schema, value: string, at: string): string | null {
  const length = [...value].length;
  const { minLength, maxLength, pattern } = schema;
  if (typeof minLength === 'number' && length < minLength) return `${at} must have at least ${plural(minLength, 'character')}; it has ${length}.`;
  if (typeof maxLength === 'number' && length > maxLength) return `${at} must have at most ${plural(maxLength, 'character')}; it has ${length}.`;
  // A pattern that could take very long is left to the extension, as is one that this browser does not know.
  if (typeof pattern === 'string' && pattern.length < 500 && value.length < 2000 && !/[*+}]\)*[*+{]/.test(pattern)) {
    try {
      if (!new RegExp(pattern, 'u').test(value)) return `${at} must match ${oneLine(pattern, 120)}.`;
    } catch {
      return null;
    }
  }
  return null;
}

function canonical(value: Value): string {
  if (value instanceof Digits) {
    const number = decimal(value.text);
    if (number === null) return value.text;
    let { digits, scale } = number;
    while (scale > 0 && digits % 10n === 0n) [digits, scale] = [digits / 10n, scale - 1];
    return `${digits}e${-scale}`;
  }
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (isObject(value)) {
    return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical((value as Record<string, Value>)[name] as Value)}`).join(',')}}`;
  }
  return JSON.stringify(value);
}

/** The path of the argument that an extension's refusal names: `args.channel: unknown channel`. */
export function namedArgument(message: string): { path: string; why: string } | null {
  const found = /^args\.([^:]{1,200}): ([^]*)$/.exec(message);
  return found ? { path: (found[1] as string).replace(/\[(\d+)\]/g, '.$1'), why: found[2] as string } : null;
}

/** A draft that gives these arguments again. */
export function draftOf(schema: Schema, json: string, depth = 0): Draft {
  const form = formOf(schema, depth);
  if (depth === 0 || form === 'object') {
    const known = asSchema(schema.properties) as Record<string, Schema>;
    return Object.fromEntries(membersOf(json).map(([name, raw]) => [name, draftOf(asSchema(known[name]), raw, depth + 1)]));
  }
  if (form === 'list') return elementsOf(json).map((raw) => draftOf(asSchema(schema.items), raw, depth + 1));
  if (form !== 'text') return json;
  const text = JSON.parse(json) as string;
  return text === '' ? '""' : text;
}

const TOKEN = /"[^"\\]*(?:\\[^][^"\\]*)*"|[{}[\],:]/g;

/** The members of an object's JSON text: names, and values as they stand there. */
export function membersOf(json: string): [string, string][] {
  return split(json).map((part) => {
    const name = /^\s*("[^"\\]*(?:\\[^][^"\\]*)*")\s*:/.exec(part) as RegExpExecArray;
    return [JSON.parse(name[1] as string) as string, part.slice(name[0].length).trim()];
  });
}

function elementsOf(json: string): string[] {
  return split(json).map((part) => part.trim());
}

function split(json: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (const { 0: mark, index } of json.matchAll(TOKEN)) {
    if (mark === '{' || mark === '[') {
      if (depth++ === 0) start = index + 1;
    } else if ((mark === ',' && depth === 1) || ((mark === '}' || mark === ']') && --depth === 0)) {
      const part = json.slice(start, index);
      if (part.trim() !== '') parts.push(part);
      start = index + 1;
    }
  }
  return parts;
}
