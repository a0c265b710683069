import { batch, signal } from '@preact/signals';
import { type Ask, type Detail, type Filter, type Progress, type Row, type Tell, isOpen } from './protocol';

export const name = signal<string | null>(null);
export const progress = signal<Progress | null>(null);
/** How many cards the filter lets through. */
export const count = signal(0);
export const isSearching = signal(false);
export const filter = signal<Filter>({ text: '', state: 'all', name: null });
export const selected = signal(-1);
export const detail = signal<Detail | null>(null);
export const failure = signal<string | null>(null);
/** The rows that are known, by their places in the list: those on the screen. */
export const rows = signal<Map<number, Row>>(new Map());

let worker: Worker | null = null;
/** Rises whenever rows change their places, so that late answers are dropped. */
let turn = 0;
let range: [number, number] = [0, 0];

export function open(file: Blob, called: string): void {
  worker?.terminate();
  worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
  worker.onmessage = ({ data }: MessageEvent<Tell>) => hear(data);
  worker.onerror = (event) => (failure.value = event.message || 'the worker that reads the file cannot be started');
  batch(() => {
    name.value = called;
    progress.value = null;
    failure.value = null;
    count.value = 0;
    filter.value = { text: '', state: 'all', name: null };
    moved();
  });
  tell({ do: 'open', file });
}

export function close(): void {
  worker?.terminate();
  worker = null;
  batch(() => {
    name.value = null;
    progress.value = null;
    failure.value = null;
    count.value = 0;
    moved();
  });
}

export function setFilter(change: Partial<Filter>): void {
  filter.value = { ...filter.value, ...change };
  tell({ do: 'filter', filter: filter.value });
}

export function select(at: number): void {
  selected.value = at;
  detail.value = null;
  if (at >= 0) tell({ do: 'detail', at, turn });
}

/** Told by the list: these rows are on the screen. */
export function look(from: number, to: number): void {
  range = [from, to];
  fetchRows();
}

function fetchRows(again = false): void {
  const [from, to] = range;
  for (let at = from; at < Math.min(to, count.value); at++) {
    if (again || !rows.value.has(at)) {
      return tell({ do: 'rows', from, to, turn });
    }
  }
}

function moved(): void {
  turn += 1;
  rows.value = new Map();
  selected.value = -1;
  detail.value = null;
}

function tell(what: Ask): void {
  worker?.postMessage(what);
}

function hear(told: Tell): void {
  batch(() => {
    if (told.said === 'failed') failure.value = told.why;
    else if (told.said === 'progress') {
      const { said: _, ...rest } = told;
      progress.value = rest;
      if (isOpen(filter.value)) count.value = told.cards;
      // An answer may have come to a card on the screen.
      fetchRows(true);
    } else if (told.said === 'filtered') {
      isSearching.value = told.isSearching;
      if (told.isSearching) return;
      const same = count.value === told.count && isOpen(filter.value);
      count.value = told.count;
      if (!same) moved();
      fetchRows();
    } else if (told.turn !== turn) return;
    else if (told.said === 'rows') {
      // Only what is on the screen is kept.
      const kept = new Map<number, Row>();
      for (const [at, row] of rows.value) if (at >= range[0] - 50 && at < range[1] + 50) kept.set(at, row);
      told.rows.forEach((row, index) => kept.set(told.from + index, row));
      rows.value = kept;
    } else if (told.at === selected.value) detail.value = told.detail;
  });
}
