// Reads a transcript of any size, piece by piece, and answers what the page asks about it.
import { Decoder, load } from '../rigline';
import { Cards, DIRECTIONS, KINDS, NONE, PROTOCOLS } from './cards';
import { type Ask, type CardState, type Detail, type Filter, type Part, type Row, type Tell, isOpen } from './protocol';

/** How much of a line is shown. */
const SHOWN = 200_000;
/** How much of a line is read to be shown, in bytes. */
const READ = 1 << 20;
/** How many lines of one card are listed. */
const LISTED = 500;
/** How much is read at a time for a search, and of a line that is longer. */
const BLOCK = 4 << 20;
const LONGEST = 16 << 20;

let file: Blob = new Blob();
let cards = new Cards();
let filter: Filter = { text: '', state: 'all', name: null };
/** The cards that the filter lets through; null: all. */
let chosen: Int32Array | null = null;
/** Rises with each file and each filter: what was begun for an earlier one ends. */
let opened = 0;
let searched = 0;
let isRead = false;

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
  isRead = false;
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
  isRead = true;
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
  if (isOpen(filter)) {
    chosen = null;
    return tell({ said: 'filtered', count: count(), isSearching: false });
  }
  const matches = text === '' || !isRead ? null : await found(text, own, mine);
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
    // A line that is too long to be read is searched as far as lines are read.
    const to = Math.min(lines.get('offset', last) + lines.get('length', last), from + LONGEST);
    const block = new Uint8Array(await file.slice(from, to).arrayBuffer());
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
  if (!RECORDED.test(text)) return text;
  try {
    const entry = JSON.parse(text) as Record<string, unknown>;
    const own = entry.sent ?? entry.got;
    if (typeof own === 'string') return own;
    const hex = entry.sent_hex ?? entry.got_hex;
    return typeof hex === 'string' ? new TextDecoder().decode(Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16))) : text;
  } catch {
    return text;
  }
}

const RECORDED = /^\s*\{"ms":[0-9.]+,(?:"connection":[0-9]+,)?"(?:sent|got)(?:_hex)?":"/;

/** The first bytes of a line, which may be long. */
async function beginning(line: number, most: number): Promise<string> {
  const from = cards.lines.get('offset', line);
  const length = cards.lines.get('length', line);
  const text = new TextDecoder().decode(await file.slice(from, from + Math.min(length, most)).arrayBuffer());
  if (length <= most) return inner(text);
  // The end of an entry of a recording is missing: it is closed where it was cut.
  return RECORDED.test(text) ? inner(`${text.replace(/\\(?:u[0-9a-fA-F]{0,3})?$/, '').replace(/[\ud800-\udbff\ufffd]$/, '')}"}`) : text;
}

async function rows(from: number, to: number): Promise<Row[]> {
  const wanted: Promise<Row>[] = [];
  for (let at = from; at < Math.min(to, count()); at++) wanted.push(rowOf(cardAt(at)));
  return Promise.all(wanted);
}

/** What a request says besides its envelope. */
const ARGUMENTS = /"(?:args|payload|arguments)":\s*(\{[^]*)/;

function argumentsIn(text: string): string {
  const found = ARGUMENTS.exec(text);
  return found ? object(found[1] as string) : text;
}

/** The object at the beginning of a text; all of the text where it has no end. */
function object(text: string): string {
  let depth = 0;
  for (const { 0: mark, index } of text.matchAll(/"(?:[^"\\]|\\.)*"|[{}]/g)) {
    if (mark === '{') depth += 1;
    else if (mark === '}' && --depth === 0) return text.slice(0, index + 1);
  }
  return text;
}

async function rowOf(card: number): Promise<Row> {
  const table = cards.cards;
  const first = table.get('first', card);
  const duration = table.get('duration', card);
  const [text, fault] = [await beginning(first, 1200), cards.reasons[cards.lines.get('fault', first)] ?? ''];
  return {
    card,
    line: cards.lines.get('number', first),
    name: cards.names[table.get('name', card)] ?? '',
    state: cards.stateOf(card),
    protocol: PROTOCOLS[table.get('protocol', card)] ?? '',
    logs: table.get('logs', card),
    faults: table.get('faults', card),
    duration: Number.isNaN(duration) ? null : duration,
    text: fault === '' ? argumentsIn(text).slice(0, 300) : `${fault}, at byte ${cards.lines.get('position', first) + 1} of the line: ${text.slice(0, 200)}`,
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
  const length = cards.lines.get('length', line);
  // A character has one byte at least, so what is shown is not cut here.
  const raw = await beginning(line, READ);
  const time = cards.lines.get('time', line);
  const fault = cards.reasons[cards.lines.get('fault', line)] ?? '';
  return {
    line: cards.lines.get('number', line),
    kind: KINDS[cards.lines.get('kind', line)] ?? '',
    direction: DIRECTIONS[cards.lines.get('direction', line)] || null,
    time: Number.isNaN(time) ? null : time,
    raw: raw.slice(0, SHOWN),
    cut: Math.max(0, raw.length - SHOWN) + Math.max(0, length - READ),
    fault: fault === '' ? null : { position: cards.lines.get('position', line), reason: fault },
  };
}
