// Reads a transcript of any size, piece by piece, and answers what the page asks about it.
import { Decoder, type Message, load } from '../rigline';
import { Cards, KINDS, NONE, PROTOCOLS } from './cards';
import type { Ask, CardState, Detail, Filter, Part, Row, Tell } from './protocol';

/** How much of a line is shown. */
const SHOWN = 200_000;
/** How many lines of one card are listed. */
const LISTED = 500;
/** How much is read at a time for a search. */
const BLOCK = 4 << 20;

let file: Blob = new Blob();
let cards = new Cards();
let filter: Filter = { text: '', state: 'all', name: null };
/** The cards that the filter lets through; null: all. */
let chosen: Int32Array | null = null;
/** Rises with each file and each filter: what was begun for an earlier one ends. */
let opened = 0;
let searched = 0;
let isOpen = false;

const tell = (what: Tell) => postMessage(what);
const start = load();

addEventListener('message', async ({ data }: MessageEvent<Ask>) => {
  try {
    await start;
    if (data.do === 'open') await open(data.file);
    else if (data.do === 'filter') {
      filter = data.filter;
      await search();
    } else if (data.do === 'rows') tell({ said: 'rows', from: data.from, rows: await rows(data.from, data.to), turn: data.turn });
    else tell({ said: 'detail', at: data.at, detail: await detail(data.at), turn: data.turn });
  } catch (error) {
    tell({ said: 'failed', why: error instanceof Error ? error.message : String(error) });
  }
});

async function open(blob: Blob): Promise<void> {
  const mine = ++opened;
  file = blob;
  cards = new Cards();
  chosen = null;
  isOpen = false;
  const decoder = new Decoder();
  let read = 0;
  let told = 0;
  const progress = (isDone: boolean) => {
    told = performance.now();
    tell({ said: 'progress', read, size: blob.size, lines: cards.lines.length, cards: cards.cards.length, faults: cards.faults, names: cards.names.slice(), target: cards.target, isDone });
  };
  const reader = blob.stream().getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (mine !== opened) return void reader.cancel();
    for (const message of done ? decoder.end() : decoder.push(value)) cards.add(message);
    if (done) break;
    read += value.length;
    if (performance.now() - told > 150) progress(false);
  }
  isOpen = true;
  progress(true);
  await search();
}

function count(): number {
  return chosen?.length ?? cards.cards.length;
}

function cardAt(at: number): number {
  return chosen === null ? at : (chosen[at] ?? NONE);
}

/** Finds the cards that the filter lets through. */
async function search(): Promise<void> {
  const mine = ++searched;
  const own = cards;
  const { text, state, name } = filter;
  if (text === '' && state === 'all' && name === null) {
    chosen = null;
    return tell({ said: 'filtered', count: count(), isSearching: false });
  }
  const matches = text === '' || !isOpen ? null : await found(text, own, mine);
  if (mine !== searched || own !== cards) return;
  const kept: number[] = [];
  for (let card = 0; card < own.cards.length; card++) {
    const isRight =
      (state === 'all' || (state === 'logs' ? own.cards.get('logs', card) > 0 : own.stateOf(card) === (state as CardState))) &&
      (name === null || own.cards.get('name', card) === name) &&
      (matches === null || matches[card] === 1);
    if (isRight) kept.push(card);
  }
  chosen = Int32Array.from(kept);
  tell({ said: 'filtered', count: kept.length, isSearching: false });
}

/** Which cards have a line with this text, in any case of letters. */
async function found(text: string, own: Cards, mine: number): Promise<Uint8Array | null> {
  const wanted = text.toLowerCase();
  const matches = new Uint8Array(own.cards.length);
  const decoder = new TextDecoder();
  const { lines } = own;
  for (let line = 0; line < lines.length; ) {
    const from = lines.get('offset', line);
    let last = line;
    while (last + 1 < lines.length && lines.get('offset', last + 1) + lines.get('length', last + 1) - from <= BLOCK) last++;
    const block = new Uint8Array(await file.slice(from, lines.get('offset', last) + lines.get('length', last)).arrayBuffer());
    if (mine !== searched || own !== cards) return null;
    for (; line <= last; line++) {
      const at = lines.get('offset', line) - from;
      const raw = inner(decoder.decode(block.subarray(at, at + lines.get('length', line))));
      if (raw.toLowerCase().includes(wanted)) matches[lines.get('card', line)] = 1;
    }
    tell({ said: 'filtered', count: count(), isSearching: true });
  }
  return matches;
}

/** What stands in a line of a recording. */
function inner(text: string): string {
  if (!/^\s*\{"ms":/.test(text)) return text;
  try {
    const { sent, got } = JSON.parse(text) as { sent?: unknown; got?: unknown };
    const own = sent ?? got;
    return typeof own === 'string' ? own : text;
  } catch {
    return text;
  }
}

/** A line is read again when it is looked at. */
async function messageAt(line: number): Promise<Message | undefined> {
  const from = cards.lines.get('offset', line);
  const bytes = new Uint8Array(await file.slice(from, from + cards.lines.get('length', line)).arrayBuffer());
  const decoder = new Decoder();
  return [...decoder.push(bytes), ...decoder.end()][0];
}

async function rows(from: number, to: number): Promise<Row[]> {
  const wanted: Promise<Row>[] = [];
  for (let at = from; at < Math.min(to, count()); at++) wanted.push(rowOf(cardAt(at)));
  return Promise.all(wanted);
}

async function rowOf(card: number): Promise<Row> {
  const table = cards.cards;
  const first = table.get('first', card);
  const duration = table.get('duration', card);
  const message = await messageAt(first);
  const fault = message?.fault ?? null;
  return {
    card,
    line: cards.lines.get('number', first),
    name: cards.names[table.get('name', card)] ?? '',
    state: cards.stateOf(card),
    protocol: PROTOCOLS[table.get('protocol', card)] ?? '',
    logs: table.get('logs', card),
    faults: table.get('faults', card),
    duration: Number.isNaN(duration) ? null : duration,
    text: fault === null ? (message?.raw.slice(0, 300) ?? '') : `${fault.reason}, at byte ${fault.position + 1} of the line: ${message?.raw.slice(0, 200)}`,
  };
}

async function detail(at: number): Promise<Detail | null> {
  const card = cardAt(at);
  if (card === NONE || card >= cards.cards.length) return null;
  const parts: Part[] = [];
  let more = 0;
  let line = cards.cards.get('first', card);
  const last = cards.cards.get('last', card);
  for (; line !== NONE; line = cards.lines.get('next', line)) {
    // The answer is the last line, and is always listed.
    if (parts.length >= LISTED && line !== last) more += 1;
    else parts.push(await partOf(line));
  }
  return { ...(await rowOf(card)), parts, more };
}

async function partOf(line: number): Promise<Part> {
  const message = await messageAt(line);
  const raw = message?.raw ?? '';
  const time = cards.lines.get('time', line);
  return {
    line: cards.lines.get('number', line),
    kind: KINDS[cards.lines.get('kind', line)] ?? '',
    protocol: message?.protocol ?? null,
    direction: message?.recorded?.direction ?? null,
    time: Number.isNaN(time) ? null : time,
    raw: raw.slice(0, SHOWN),
    cut: Math.max(0, raw.length - SHOWN),
    fault: message?.fault ? { position: message.fault.position, reason: message.fault.reason } : null,
  };
}
