import { compare, decimal, isInteger, isMultiple, isNumber } from './decimal';
import { Digits, isNumeric, isObject, jsonOf, parseExact } from './exact';
import { validate } from './rigline';
import { oneLine, plural } from './text';

/** What a manifest says of a value; members that this page does not know are left to the extension. */
export interface Schema {
  type?: string | string[];
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  minimum?: number | Digits;
  maximum?: number | Digits;
  exclusiveMinimum?: number | Digits;
  exclusiveMaximum?: number | Digits;
  multipleOf?: number | Digits;
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
/** How many fields a form has at most, and how many values a choice: what has more is written as JSON. */
const FIELDS = 200;
const CHOICES = 1000;

export function asSchema(value: unknown): Schema {
  return isObject(value) ? value : {};
}

/** How a value is entered. */
export function formOf(schema: Schema, depth = 0): Form {
  if (COMBINATORS.some((name) => Object.hasOwn(schema, name))) return 'json';
  const { length } = choicesOf(schema);
  if (length > 0 && length <= CHOICES) return 'choice';
  const types = typesOf(schema).filter((type) => type !== 'null');
  const canBeNull = typesOf(schema).includes('null');
  if (types.length !== 1) return 'json';
  const type = types[0];
  if (type === 'integer' || type === 'number' || type === 'boolean') return type;
  // `null` would be the text "null".
  if (canBeNull) return 'json';
  if (type === 'string') return 'text';
  if (depth >= DEEPEST) return 'json';
  if (type === 'object' && hasFields(schema)) return 'object';
  if (type === 'array' && isObject(schema.items)) return 'list';
  return 'json';
}

/** How an operation's arguments are entered; null: it takes none. */
export function formOfArguments(schema: Schema): 'object' | 'json' | null {
  if (hasFields(schema)) return 'object';
  const isAny = schema.additionalProperties === true || isObject(schema.additionalProperties);
  return isAny || COMBINATORS.some((name) => Object.hasOwn(schema, name)) || membersOfSchema(schema).length > 0 || requiredOf(schema).length > 0 ? 'json' : null;
}

/** Whether an object can be entered by fields: there are some, not too many, one for each member that is required. */
function hasFields(schema: Schema): boolean {
  const names = membersOfSchema(schema);
  const isWhole = requiredOf(schema).every((name) => names.includes(name)) && !COMBINATORS.some((name) => Object.hasOwn(schema, name));
  return isWhole && names.length > 0 && names.length <= FIELDS;
}

function membersOfSchema(schema: Schema): string[] {
  return Object.keys(asSchema(schema.properties));
}

export function requiredOf(schema: Schema): string[] {
  return Array.isArray(schema.required) ? schema.required.filter((name) => typeof name === 'string') : [];
}

/** The values that are allowed, where the schema lists them. */
export function choicesOf(schema: Schema): unknown[] {
  if (Object.hasOwn(schema, 'const')) return [schema.const];
  return Array.isArray(schema.enum) ? schema.enum : [];
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
  if (isNumeric(min) && isNumeric(max)) found.push(`From ${min} to ${max}.`);
  else if (isNumeric(min)) found.push(`At least ${min}.`);
  else if (isNumeric(max)) found.push(`At most ${max}.`);
  if (isNumeric(above)) found.push(`More than ${above}.`);
  if (isNumeric(below)) found.push(`Less than ${below}.`);
  if (isNumeric(schema.multipleOf)) found.push(`In steps of ${schema.multipleOf}.`);
  const { minLength, maxLength, minItems, maxItems } = schema;
  if (typeof minLength === 'number' && minLength > 0) found.push(`At least ${plural(minLength, 'character')}.`);
  if (typeof maxLength === 'number') found.push(`At most ${plural(maxLength, 'character')}.`);
  if (typeof schema.pattern === 'string') found.push(`Must match ${oneLine(schema.pattern, 80)}.`);
  if (typeof minItems === 'number' && minItems > 0) found.push(`At least ${plural(minItems, 'entry', 'entries')}.`);
  if (typeof maxItems === 'number') found.push(`At most ${plural(maxItems, 'entry', 'entries')}.`);
  if (Object.hasOwn(schema, 'default')) found.push(`Default: ${oneLine(jsonOf(schema.default), 80)}.`);
  return found;
}

export function typeName(schema: Schema): string {
  const types = typesOf(schema);
  return types.length === 0 ? 'any JSON value' : types.join(' or ');
}

/** The JSON text of a whole form. */
export function collect(schema: Schema, draft: Draft): Collected {
  const errors = new Map<string, string>();
  const form = formOfArguments(schema);
  let json: string | null = '{}';
  if (form === 'object') json = objectOf(schema, draft, true, '', 0, errors);
  else if (form === 'json') json = valueOf(schema, blank(draft) ? '{}' : draft, true, '', 0, errors);
  if (json?.startsWith('{') === false) errors.set('', 'The arguments must be a JSON object.');
  return { json: errors.size === 0 ? json : null, errors };
}

function valueOf(schema: Schema, draft: Draft, required: boolean, path: string, depth: number, errors: Map<string, string>): string | null {
  const form = formOf(schema, depth);
  if (form === 'object') return objectOf(schema, draft, required, path, depth, errors);
  if (form === 'list') return listOf(schema, draft, required, path, depth, errors);
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
    const fault = validate(json);
    if (fault !== null) return refuse(`This is not JSON: ${fault.reason} (position ${fault.position + 1}).`);
  }
  const why = check(schema, parseExact(json), '');
  return why === null ? json.replace(/[\r\n]+/g, ' ') : refuse(why);
}

function objectOf(schema: Schema, draft: Draft, required: boolean, path: string, depth: number, errors: Map<string, string>): string | null {
  const given = isObject(draft) ? (draft as { [name: string]: Draft }) : {};
  const needed = new Set(requiredOf(schema));
  if (blank(given) && !required) return null;
  const members: string[] = [];
  for (const [name, below] of Object.entries(schema.properties ?? {})) {
    const own = Object.hasOwn(given, name) ? (given[name] as Draft) : '';
    const json = valueOf(asSchema(below), own, needed.has(name), path === '' ? name : `${path}.${name}`, depth + 1, errors);
    if (json !== null) members.push(`${JSON.stringify(name)}:${json}`);
  }
  return `{${members.join(',')}}`;
}

function listOf(schema: Schema, draft: Draft, required: boolean, path: string, depth: number, errors: Map<string, string>): string | null {
  const given = Array.isArray(draft) ? draft : [];
  if (given.length === 0 && !required) return null;
  const elements = given.map((own, at) => valueOf(asSchema(schema.items), own, true, `${path}.${at}`, depth + 1, errors));
  const json = `[${elements.join(',')}]`;
  if (!elements.includes(null)) {
    const why = check({ ...schema, items: undefined }, parseExact(json), '');
    if (why !== null) errors.set(path, why);
  }
  return json;
}

function blank(draft: Draft): boolean {
  if (typeof draft === 'string') return draft.trim() === '';
  return Array.isArray(draft) ? draft.length === 0 : Object.values(draft).every(blank);
}

function fits(type: string, value: unknown): boolean {
  if (isNumeric(value)) {
    const number = decimal(String(value));
    return type === 'number' || (type === 'integer' && (number === null || isInteger(number)));
  }
  return type === (value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value);
}

/** What is wrong with a value, in words; null where nothing is. */
/** Why a value does not fit a schema; null: it does, or only the extension knows. */
export function check(schema: Schema, value: unknown, where: string): string | null {
  const at = where === '' ? 'This' : where;
  const types = typesOf(schema);
  if (types.length > 0 && !types.some((type) => fits(type, value))) {
    const wanted = types.map((type) => (type === 'integer' ? 'a whole number' : type === 'array' || type === 'object' ? `an ${type}` : `a ${type}`));
    return `${at} must be ${wanted.join(' or ')}.`;
  }
  const choices = choicesOf(schema);
  if (choices.length > 0 && !choices.some((one) => canonical(one) === canonical(value))) {
    return `${at} must be ${choices.length > 1 ? 'one of ' : ''}${oneLine(choices.map(jsonOf).join(', '), 200)}.`;
  }
  if (isNumeric(value)) return checkNumber(schema, value, at);
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
    for (const name of requiredOf(schema)) {
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

function checkNumber(schema: Schema, value: number | Digits, at: string): string | null {
  const number = decimal(String(value));
  if (number === null) return null;
  const limit = (name: 'minimum' | 'maximum' | 'exclusiveMinimum' | 'exclusiveMaximum' | 'multipleOf') => {
    const given = schema[name];
    return isNumeric(given) ? decimal(String(given)) : null;
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
  if (typeof pattern === 'string' && isCheap(pattern) && value.length <= 256) {
    try {
      if (!new RegExp(pattern, 'u').test(value)) return `${at} must match ${oneLine(pattern, 120)}.`;
    } catch {
      return null;
    }
  }
  return null;
}

/** Whether a pattern takes little time with every short text. Browsers may take exponential time where a repeated group matches in several ways. */
function isCheap(pattern: string): boolean {
  if (pattern.length > 500) return false;
  const bare = pattern.replace(/\\./gsu, 'x').replace(/\[[^\]]*\]/g, 'x').replace(/\(\?(?:<?[=!]|:|<\w+>)/g, '(');
  const choices = bare.match(/[*+?|]|\{\d+,\d*\}/g) ?? [];
  return /\)[*+{]/.test(bare) ? !/\)[*+]/.test(bare) && choices.length === 0 : choices.filter((one) => one !== '?' && one !== '|').length <= 2;
}

/** The same text for equal values. */
function canonical(value: unknown): string {
  if (isNumeric(value)) {
    const number = decimal(String(value));
    if (number === null) return String(value);
    let { digits, scale } = number;
    while (scale > 0 && digits % 10n === 0n) [digits, scale] = [digits / 10n, scale - 1];
    return `${digits}e${-scale}`;
  }
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (isObject(value)) return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(',')}}`;
  return JSON.stringify(value);
}

/** The path of the argument that an extension's refusal names: `args.channel: unknown channel`. */
export function namedArgument(message: string): { path: string; why: string } | null {
  const found = /^args\.([^:]{1,200}): ([^]*)$/.exec(message);
  return found ? { path: (found[1] as string).replace(/\[(\d+)\]/g, '.$1'), why: found[2] as string } : null;
}

/** A draft that gives these arguments again. */
export function draftOf(schema: Schema, json: string, depth = 0): Draft {
  const form = depth === 0 ? (formOfArguments(schema) ?? 'object') : formOf(schema, depth);
  if (form === 'object') {
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
