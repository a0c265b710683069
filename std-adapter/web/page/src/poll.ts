import { effect, signal } from '@preact/signals';
import { keep, kept, later } from './here';
import { execute, ready } from './session';
import { Column, Samples } from './samples';
import { oneLine } from './text';
import { reading } from './reading';
import { sleep } from './sleep';

/** An operation that is called again and again. */
export interface Source {
  id: number;
  operation: string;
  /** JSON text. */
  args: string;
  /** It is here for pinned readings only, and goes with the last of them. */
  isPinned: boolean;
}

export interface Plotted {
  key: string;
  label: string;
  source: number;
  output: string;
  column: Column;
  isShown: boolean;
  /** Its colour and dash, while it is shown: the first that no other one has. */
  slot: number;
  /** Which axis the user wants for it. */
  axis: 'unit' | 'left' | 'right';
}

/** How many series there may be. */
const SERIES = 64;

export const sources = signal<Source[]>([]);
export const series = signal<Plotted[]>([]);
/** Rises with each point. */
export const version = signal(0);
export const status = signal<'stopped' | 'running' | 'paused'>('stopped');
/** Seconds between samples. */
export const interval = signal(0.5);
export const lastError = signal('');
export const counts = signal({ samples: 0, missed: 0, failed: 0, dropped: 0 });
/** How many of the missed samples were due while the page was hidden or asleep. */
export const hiddenMissed = signal(0);

/** How many seconds are shown, up to the newest sample; 0: all. */
export const windowed = signal(0);
/** Outputs that have no place in a plot, by source and name, and why. */
export const refused = signal<ReadonlyMap<string, { label: string; why: string }>>(new Map());

export const samples = new Samples();

let nextSource = 1;

// What is sampled and how it is drawn lasts as long as the tab; the samples do not.
interface Kept {
  sources: { operation: string; args: string; isPinned?: boolean; series: { output: string; isShown: boolean; axis: Plotted['axis'] }[] }[];
  interval: number;
  windowed: number;
}

effect(() => {
  const all: Kept = {
    sources: sources.value.map(({ id, operation, args, isPinned }) => ({ operation, args, isPinned, series: series.value.filter((one) => one.source === id).map(({ output, isShown, axis }) => ({ output, isShown, axis })) })),
    interval: interval.value,
    windowed: windowed.value,
  };
  if (isRestored) later('plots', () => keep('plots', all));
});

let isRestored = false;
/** Takes what was sampled before the page was loaded anew. */
export function restore(): void {
  const found = kept('plots') as Partial<Kept> | undefined;
  for (const source of Array.isArray(found?.sources) ? found.sources.slice(0, SERIES) : []) {
    if (typeof source?.operation !== 'string' || typeof source.args !== 'string') continue;
    addSource(source.operation, source.args, source.isPinned === true);
    const made = sources.value.find((one) => one.operation === source.operation && one.args === source.args) as Source;
    for (const one of Array.isArray(source.series) ? source.series : []) {
      if (typeof one?.output !== 'string' || series.value.length >= SERIES) continue;
      const next = plotted(`${made.id} ${one.output}`, `${nameOf(made)}: ${one.output}`, made.id, one.output, series.value);
      series.value = [...series.value, { ...next, isShown: one.isShown === true, axis: ['left', 'right'].includes(one.axis) ? one.axis : 'unit', slot: one.isShown === true ? freeSlot(series.value) : 0 }];
    }
  }
  if (typeof found?.interval === 'number' && found.interval > 0) interval.value = found.interval;
  if (typeof found?.windowed === 'number' && found.windowed >= 0) windowed.value = found.windowed;
  isRestored = true;
}
let round = 0;

export function addSource(operation: string, args: string, isPinned = false): void {
  const known = sources.value.find((source) => source.operation === operation && source.args === args);
  if (!known) sources.value = [...sources.value, { id: nextSource++, operation, args, isPinned }];
  else if (known.isPinned && !isPinned) sources.value = sources.value.map((source) => (source === known ? { ...known, isPinned } : source));
}

export function removeSource(id: number): void {
  sources.value = sources.value.filter((source) => source.id !== id);
  for (const one of series.value) if (one.source === id) samples.forget(one.column);
  series.value = series.value.filter((one) => one.source !== id);
  refused.value = new Map([...refused.value].filter(([key]) => !key.startsWith(`${id} `)));
}

export function nameOf(source: { operation: string; args: string }): string {
  return source.args === '{}' ? source.operation : `${source.operation} ${source.args.slice(1, -1).replaceAll('"', '').replaceAll(',', ', ').replaceAll(':', '=')}`;
}

function freeSlot(all: readonly Plotted[]): number {
  const taken = new Set(all.filter((one) => one.isShown).map((one) => one.slot));
  let slot = 0;
  while (taken.has(slot)) slot += 1;
  return slot;
}

export function show(key: string, isShown: boolean): void {
  series.value = series.value.map((one) => (one.key === key && one.isShown !== isShown ? { ...one, isShown, slot: freeSlot(series.value) } : one));
}

export function setAxis(key: string, axis: Plotted['axis']): void {
  series.value = series.value.map((one) => (one.key === key ? { ...one, axis } : one));
}

export function clear(): void {
  samples.clear();
  series.value = series.value.map((one) => ({ ...one, column: new Column(one.output) }));
  refused.value = new Map();
  counts.value = { samples: 0, missed: 0, failed: 0, dropped: 0 };
  hiddenMissed.value = 0;
  lastError.value = '';
  version.value += 1;
}

export function start(): void {
  if (status.value === 'running') return;
  status.value = 'running';
  void poll(++round);
}

export function pause(): void {
  if (status.value !== 'running') return;
  round += 1;
  status.value = 'paused';
  gap();
}

export function stop(): void {
  round += 1;
  if (status.value === 'running') gap();
  status.value = 'stopped';
}

/** Takes samples at fixed times. A time at which the last sample is not there yet is missed: there the lines have a gap. */
async function poll(mine: number): Promise<void> {
  let due = performance.now();
  while (mine === round) {
    const step = interval.value * 1000;
    if (!ready.value) {
      gap();
      lastError.value = 'There is no connection. Sampling goes on when there is one again.';
      await sleep(Math.max(200, step));
      due = performance.now();
      continue;
    }
    const wasHidden = document.hidden;
    const time = Date.now() / 1000;
    const found = new Map<string, string>();
    let failed = 0;
    for (const source of sources.value) {
      const outcome = await execute(source.operation, source.args, Math.max(5, interval.value));
      if (mine !== round) return;
      if (outcome.status !== 'done') {
        failed += 1;
        lastError.value = `${nameOf(source)}: ${oneLine(outcome.message, 300)}`;
      } else for (const [output, text] of outcome.outputs) {
        found.set(`${source.id} ${output}`, text);
      }
    }
    if (failed === 0) lastError.value = '';
    learn(found);
    push(time, found);
    counts.value = { ...counts.value, samples: counts.value.samples + 1, failed: counts.value.failed + failed };
    due += step;
    const late = performance.now() - due;
    if (late > 0) {
      const missed = Math.floor(late / step) + (late % step > 0 ? 1 : 0);
      // A sample that is late by less than a tenth of a step is taken at once.
      if (late > step / 10) {
        due += missed * step;
        gap((Date.now() / 1000 + time) / 2);
        counts.value = { ...counts.value, missed: counts.value.missed + missed };
        if (wasHidden || document.hidden) hiddenMissed.value += missed;
      }
    }
    await sleep(due - performance.now());
  }
}

/** New outputs become series, if they have a value; of each source the first is shown. Of the others it is said why they have no place. */
function learn(found: ReadonlyMap<string, string>): void {
  const known = new Set(series.value.map((one) => one.key));
  const made: Plotted[] = [];
  const why = new Map(refused.value);
  for (const [key, text] of found) {
    if (known.has(key)) continue;
    const [id, output] = [Number(key.slice(0, key.indexOf(' '))), key.slice(key.indexOf(' ') + 1)];
    const source = sources.value.find((one) => one.id === id);
    if (!source) continue;
    const label = `${nameOf(source)}: ${output}`;
    const read = reading(text);
    if ('why' in read || series.value.length + made.length >= SERIES) {
      if (why.has(key) || why.size < SERIES) why.set(key, { label, why: 'why' in read ? read.why : `there are ${SERIES} series already` });
      continue;
    }
    why.delete(key);
    made.push(plotted(key, label, source.id, output, [...series.value, ...made]));
  }
  if (made.length > 0) series.value = [...series.value, ...made];
  if (why.size !== refused.value.size || [...why].some(([key, one]) => refused.value.get(key)?.why !== one.why)) refused.value = why;
}

function plotted(key: string, label: string, source: number, output: string, all: readonly Plotted[]): Plotted {
  const isShown = !all.some((one) => one.source === source);
  return { key, label, source, output, column: new Column(output), isShown, slot: isShown ? freeSlot(all) : 0, axis: 'unit' };
}

/** The series of one output, if there is one. */
export function find(operation: string, args: string, output: string): Plotted | null {
  const source = sources.value.find((one) => one.operation === operation && one.args === args);
  return (source && series.value.find((one) => one.key === `${source.id} ${output}`)) ?? null;
}

/** Samples one output from now on; its line is not drawn yet. Null: there are too many. */
export function follow(operation: string, args: string, output: string): Plotted | null {
  addSource(operation, args, true);
  const known = find(operation, args, output);
  if (known || series.value.length >= SERIES) return known;
  const source = sources.value.find((one) => one.operation === operation && one.args === args) as Source;
  const made = { ...plotted(`${source.id} ${output}`, `${nameOf(source)}: ${output}`, source.id, output, series.value), isShown: false };
  series.value = [...series.value, made];
  return made;
}

/** Samples one output, and draws its line. `outputs` are what a call has just given. */
export function plot(operation: string, args: string, output: string, outputs: readonly [string, string][] = []): void {
  const one = follow(operation, args, output);
  if (!one) return;
  addSource(operation, args);
  show(one.key, true);
  if (one.column.now === null && outputs.length > 0) hear(operation, args, outputs);
}

/** No pinned reading needs this any more. */
export function unfollow(operation: string, args: string): void {
  const source = sources.value.find((one) => one.operation === operation && one.args === args);
  if (source?.isPinned && !series.value.some((one) => one.source === source.id && one.isShown)) removeSource(source.id);
}

/** Takes the outputs of a call that was made for another reason: they are a sample, too. */
export function hear(operation: string, args: string, outputs: readonly [string, string][]): void {
  const source = sources.value.find((one) => one.operation === operation && one.args === args);
  if (!source) return;
  const found = new Map(outputs.map(([output, text]) => [`${source.id} ${output}`, text]));
  learn(found);
  push(Date.now() / 1000, found);
}

function push(time: number, found: ReadonlyMap<string, string>): void {
  const texts = new Map<Column, string>();
  for (const one of series.value) {
    const text = found.get(one.key);
    if (text !== undefined) texts.set(one.column, text);
  }
  samples.push(time, texts);
  if (samples.dropped !== counts.value.dropped) counts.value = { ...counts.value, dropped: samples.dropped };
  version.value += 1;
}

/** A point without values, at which all lines break; not two in a row. */
function gap(time = Date.now() / 1000): void {
  if (samples.length === 0 || samples.isAtGap) return;
  push(time, new Map());
}

/** A file for a spreadsheet, with the device's own texts. What a spreadsheet would run as a formula is a text in it. */
export function csv(): string[] {
  const isFormula = (text: string) => /^[=+@\t\r-]/.test(text) && (/[*/()'"^]/.test(text) || 'why' in reading(text));
  const cell = (text: string) => (isFormula(text) ? `"'${text.replaceAll('"', '""')}"` : /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const shownSeries = series.value.filter((one) => one.isShown);
  const head = ['time', ...shownSeries.map((one) => cell(one.label))].join(',');
  return [`${head}\r\n`, ...samples.rows(shownSeries.map((one) => one.column), cell)];
}

