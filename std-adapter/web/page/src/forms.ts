import { batch, effect, signal } from '@preact/signals';
import { type View, hash, setHash, view } from './address';
import { isObject, parseExact } from './exact';
import { keep, kept, later } from './here';
import { validate } from './rigline';
import { type Draft, type Schema, asSchema, check, collect, draftOf, membersOf } from './schema';
import { manifest, notice } from './session';
import { oneLine } from './text';

// The operation whose form is shown, and what stands in each form: kept over a reload, and part of the address. An address only fills in a
// form; nothing runs by opening it.

export const chosen = signal<string | null>(textOr(kept('chosen')));
export const drafts = signal<ReadonlyMap<string, Draft>>(mapOf(kept('drafts'), isDraft));
export const timeouts = signal<ReadonlyMap<string, string>>(mapOf(kept('timeouts'), (value) => typeof value === 'string'));

/** Longer arguments are not part of the address, in characters. */
const LONGEST = 4000;
/** How many forms are kept. */
const MOST = 200;

function textOr(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

function mapOf<T>(value: unknown, fits: (value: unknown) => value is T): ReadonlyMap<string, T>;
function mapOf(value: unknown, fits: (value: unknown) => boolean): ReadonlyMap<string, string>;
function mapOf(value: unknown, fits: (value: unknown) => boolean): ReadonlyMap<string, unknown> {
  const entries: unknown[] = Array.isArray(value) ? value : [];
  return new Map(entries.filter((one): one is [string, unknown] => Array.isArray(one) && typeof one[0] === 'string' && fits(one[1])));
}

function isDraft(value: unknown): value is Draft {
  if (typeof value === 'string') return true;
  return Array.isArray(value) ? value.every(isDraft) : isObject(value) && Object.values(value).every(isDraft);
}

/** Shows an operation's form. The button Back leads to the one before. */
export function choose(operation: string): void {
  if (operation === chosen.value) return;
  chosen.value = operation;
  write(true);
}

/** Takes what stands in a form. */
export function setDraft(operation: string, draft: Draft): void {
  drafts.value = new Map(drafts.value).set(operation, draft);
}

/** Shows an operation's form with these arguments in it. */
export function fill(operation: string, args: string): void {
  const known = manifest.value?.operations.find((one) => one.name === operation);
  if (!known) return;
  batch(() => {
    setDraft(operation, draftOf(known.params, args));
    choose(operation);
  });
}

/** The operation that is shown: the chosen one, or the first. */
function shownOperation(): { name: string; params: Schema } | null {
  const all = manifest.value?.operations ?? [];
  return all.find((one) => one.name === chosen.value) ?? all[0] ?? null;
}

/** Has the address say what is shown. */
function write(isNew: boolean): void {
  const operation = shownOperation();
  if (operation === null || view.value !== 'live') return;
  const draft = drafts.value.get(operation.name);
  const args = draft === undefined ? null : collect(operation.params, draft).json;
  setHash({ op: operation.name, args: args === null || args === '{}' || args.length > LONGEST ? null : args }, isNew);
}

/** Takes from the address what it says, once the manifest is known. */
function read(): void {
  const known = manifest.value;
  const parts = hash();
  const name = parts.get('op');
  if (known === null || name === null) return;
  const operation = known.operations.find((one) => one.name === name);
  if (!operation) {
    notice.value = `The address names the operation ${oneLine(name, 60)}, which this rig does not have.`;
    return;
  }
  batch(() => {
    chosen.value = name;
    const args = parts.get('args');
    if (args !== null) take(operation.name, operation.params, args);
  });
}

function take(name: string, schema: Schema, args: string): void {
  const fault = args.length > LONGEST ? { reason: `they are longer than ${LONGEST} characters` } : validate(args);
  if (fault !== null || !isObject(parseExact(args))) {
    notice.value = `The arguments in the address cannot be used: ${fault === null ? 'they are no JSON object' : fault.reason}.`;
    return;
  }
  const given = parseExact(args) as Record<string, unknown>;
  const properties = asSchema(schema.properties);
  const named = Object.keys(properties);
  const unknown = named.length === 0 ? [] : Object.keys(given).filter((member) => !Object.hasOwn(properties, member));
  const wrong = Object.keys(given).filter((member) => Object.hasOwn(properties, member) && check(asSchema(properties[member]), given[member], '') !== null);
  // What does not fit has no place in a form.
  const kept = membersOf(args).filter(([member]) => !wrong.includes(member) && !unknown.includes(member));
  setDraft(name, draftOf(schema, `{${kept.map(([member, value]) => `${JSON.stringify(member)}:${value}`).join(',')}}`));
  const list = (names: string[]) => oneLine(names.join(', '), 200);
  if (unknown.length > 0) notice.value = `The address has arguments that ${oneLine(name, 60)} does not have: ${list(unknown)}.`;
  else if (wrong.length > 0) notice.value = `Arguments in the address do not fit the operation: ${list(wrong)}.`;
}

let isFirst = true;
/** What the address says is taken when the manifest comes, and when the address changes; afterwards the address follows the form. */
export function follow(): void {
  manifest.subscribe((known) => {
    if (known === null) return;
    if (isFirst) read();
    isFirst = false;
    later('address', () => write(false));
  });
  addEventListener('popstate', read);
  addEventListener('hashchange', read);
  effect(() => {
    const [all, limits, name, shown]: [ReadonlyMap<string, Draft>, ReadonlyMap<string, string>, string | null, View] = [drafts.value, timeouts.value, chosen.value, view.value];
    later('forms', () => {
      keep('drafts', [...all].slice(-MOST));
      keep('timeouts', [...limits].slice(-MOST));
      keep('chosen', name);
    });
    if (shown === 'live') later('address', () => write(false));
  });
}
