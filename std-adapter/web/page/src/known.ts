import { computed, signal } from '@preact/signals';
import { choicesOf, requiredOf } from './schema';
import { calls, manifest, quietly, state } from './session';

/** What `identify` says that there is: lists of names, by the name of its output, such as `rails`. */
const lists = signal<ReadonlyMap<string, string[]>>(new Map());
/** The manifest that the lists belong to. */
let asked: unknown = null;

/** How many names are offered. */
const MOST = 60;

/** Asks the rig once for its names, if it has an operation for that which needs nothing. */
export async function learn(): Promise<void> {
  const mine = manifest.value;
  if (mine === null || asked === mine || state.value.at !== 'ready') return;
  asked = mine;
  lists.value = new Map();
  const identify = mine.operations.find((one) => one.name === 'identify');
  if (!identify || requiredOf(identify.params).length > 0) return;
  const outputs = await quietly('identify');
  if (manifest.value === mine && outputs) take(outputs);
}

function take(outputs: Iterable<[string, string]>): void {
  const found = new Map<string, string[]>();
  for (const [name, text] of outputs) {
    const names = namesIn(text);
    if (names.length > 0) found.set(name.toLowerCase(), names);
  }
  lists.value = found;
}

function namesIn(text: string): string[] {
  if (!text.startsWith('[') || text.length > 20_000) return [];
  try {
    const all = JSON.parse(text) as unknown;
    return Array.isArray(all) && all.length <= 1000 && all.every((one) => typeof one === 'string' && one !== '' && one.length <= 100) ? [...new Set(all as string[])].slice(0, MOST) : [];
  } catch {
    return [];
  }
}

/** A call of `identify` that the user makes says it, too. */
const newest = computed(() => {
  const call = calls.value.find((one) => one.operation === 'identify' && one.status === 'done' && one.args === '{}');
  return call && manifest.value ? call.outputs : null;
});
newest.subscribe((outputs) => outputs && take(outputs));

const singular = (list: string) => (list.endsWith('ies') ? `${list.slice(0, -3)}y` : list.endsWith('xes') || list.endsWith('ses') || list.endsWith('ches') ? list.slice(0, -2) : list.endsWith('s') ? list.slice(0, -1) : list);

/**
 * The names that a text argument may well have: those of the list with its name in the plural; else those of the lists that its description
 * speaks of, such as "an input's or an output's".
 */
export function namesFor(argument: string, schema: { description?: string; enum?: unknown[] }): string[] {
  if (lists.value.size === 0 || choicesOf(schema).length > 0) return [];
  const bare = argument.toLowerCase();
  for (const [list, names] of lists.value) if (list === bare || singular(list) === bare) return names;
  const words = new Set((typeof schema.description === 'string' ? schema.description : '').slice(0, 300).toLowerCase().match(/[a-z]+/g) ?? []);
  const spoken = [...lists.value].filter(([list]) => words.has(singular(list)) || words.has(list));
  return [...new Set(spoken.flatMap(([, names]) => names))].slice(0, MOST);
}
