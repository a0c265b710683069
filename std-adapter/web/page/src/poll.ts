import { signal } from '@preact/signals';
import { drawable } from './Chart';
import { isNumber } from './decimal';
import { execute, ready } from './session';
import { oneLine } from './text';

/** An operation that is called again and again. */
interface Source {
  id: number;
  operation: string;
  /** JSON text. */
  args: string;
}

interface Plotted {
  key: string;
  label: string;
  source: number;
  output: string;
  values: (number | null)[];
  isShown: boolean;
}

/** How many points in time are kept. */
const POINTS = 20_000;
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

/** Points in time, in seconds. */
export let times: number[] = [];

let nextSource = 1;
let round = 0;

export function addSource(operation: string, args: string): void {
  if (sources.value.some((source) => source.operation === operation && source.args === args)) return;
  sources.value = [...sources.value, { id: nextSource++, operation, args }];
}

export function removeSource(id: number): void {
  sources.value = sources.value.filter((source) => source.id !== id);
  series.value = series.value.filter((one) => one.source !== id);
}

export function nameOf(source: Source): string {
  return source.args === '{}' ? source.operation : `${source.operation} ${source.args.slice(1, -1).replaceAll('"', '').replaceAll(',', ', ').replaceAll(':', '=')}`;
}

export function show(key: string, isShown: boolean): void {
  series.value = series.value.map((one) => (one.key === key ? { ...one, isShown } : one));
}

export function clear(): void {
  times = [];
  series.value = series.value.map((one) => ({ ...one, values: [] }));
  counts.value = { samples: 0, missed: 0, failed: 0, dropped: 0 };
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
    if (document.hidden) {
      // A hidden page takes no samples.
      gap();
      await seen();
      due = performance.now();
      continue;
    }
    if (!ready.value) {
      gap();
      lastError.value = 'There is no connection. Sampling goes on when there is one again.';
      await sleep(Math.max(200, step));
      due = performance.now();
      continue;
    }
    const time = Date.now() / 1000;
    const found = new Map<string, number>();
    let failed = 0;
    for (const source of sources.value) {
      const outcome = await execute(source.operation, source.args, Math.max(5, interval.value));
      if (mine !== round) return;
      if (outcome.status !== 'done') {
        failed += 1;
        lastError.value = `${nameOf(source)}: ${oneLine(outcome.message, 300)}`;
      } else for (const [output, text] of outcome.outputs) {
        const value = isNumber(text.trim()) ? drawable(Number(text)) : null;
        if (value !== null) found.set(`${source.id} ${output}`, value);
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
      }
    }
    await sleep(due - performance.now());
  }
}

/** New outputs become series; of each source the first is shown. */
function learn(found: Map<string, number>): void {
  const known = new Set(series.value.map((one) => one.key));
  const made: Plotted[] = [];
  for (const key of found.keys()) {
    if (known.has(key) || series.value.length + made.length >= SERIES) continue;
    const [id, output] = [Number(key.slice(0, key.indexOf(' '))), key.slice(key.indexOf(' ') + 1)];
    const source = sources.value.find((one) => one.id === id);
    if (!source) continue;
    const isFirst = ![...series.value, ...made].some((one) => one.source === id);
    made.push({ key, label: `${nameOf(source)}: ${output}`, source: id, output, values: times.map(() => null), isShown: isFirst });
  }
  if (made.length > 0) series.value = [...series.value, ...made];
}

function push(time: number, found: Map<string, number>): void {
  times.push(Math.max(time, (times.at(-1) ?? 0) + 1e-6));
  for (const one of series.value) one.values.push(found.get(one.key) ?? null);
  if (times.length > POINTS) {
    const most = POINTS / 10;
    times = times.slice(most);
    for (const one of series.value) one.values = one.values.slice(most);
    counts.value = { ...counts.value, dropped: counts.value.dropped + most };
  }
  version.value += 1;
}

/** A point without values, at which all lines break; not two in a row. */
function gap(time = Date.now() / 1000): void {
  if (times.length === 0 || series.value.every((one) => one.values.at(-1) === null)) return;
  push(time, new Map());
}

export function csv(): string {
  const cell = (text: string) => (/^[=+@\t\r-]/.test(text) || /[",\r\n]/.test(text) ? `"${text.replace(/^(?=[=+@\t\r-])/, "'").replaceAll('"', '""')}"` : text);
  const shownSeries = series.value.filter((one) => one.isShown);
  const rows = [['time', ...shownSeries.map((one) => cell(one.label))].join(',')];
  for (const [at, time] of times.entries()) {
    rows.push([new Date(time * 1000).toISOString(), ...shownSeries.map((one) => one.values[at] ?? '')].join(','));
  }
  return `${rows.join('\r\n')}\r\n`;
}

function sleep(time: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, time)));
}

function seen(): Promise<void> {
  return new Promise((resolve) => document.addEventListener('visibilitychange', () => resolve(), { once: true }));
}
