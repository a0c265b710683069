import { plain } from './ansi';
import { compare, decimal } from './decimal';
import { conversion, reading, unitOfName } from './reading';

/** How many rows a block has: what is oldest is dropped in blocks. */
const ROWS = 4096;
/** How many rows are kept: a day has 864,000 at ten a second. */
const MOST_ROWS = 1_000_000;
/** How much memory the samples take, in bytes. */
const MOST_BYTES = 96 << 20;
/** What a text costs in memory beside its letters. */
const TEXT_COST = 64;
/** A text longer than this is cut. */
const LONGEST = 200;

/** How a text follows from its number: what stands before and behind it, and its digits behind the point; null: as JavaScript writes it. */
interface Shape {
  before: string;
  digits: number | null;
  after: string;
}
const NONE = 0;
const WORDS = 255;

/** The samples of one series in one block. The device's own text is kept as the shape of its number, or as it is where that is not enough. */
class Cells {
  readonly values = new Float64Array(ROWS).fill(Number.NaN);
  readonly #shapes = new Uint8Array(ROWS);
  readonly #known: Shape[] = [];
  readonly #texts = new Map<number, string>();
  bytes = ROWS * 9;

  set(row: number, value: number, text: string): void {
    this.values[row] = value;
    if (text === '') return;
    const shape = shapeOf(text);
    if (shape && spelled(value, shape) === text) {
      let at = this.#known.findIndex((one) => one.before === shape.before && one.digits === shape.digits && one.after === shape.after);
      if (at < 0 && this.#known.length < WORDS - 1) at = this.#known.push(shape) - 1;
      if (at >= 0) {
        this.#shapes[row] = at + 1;
        return;
      }
    }
    this.#shapes[row] = WORDS;
    const kept = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
    this.#texts.set(row, kept);
    this.bytes += kept.length * 2 + TEXT_COST;
  }

  text(row: number): string {
    const shape = this.#shapes[row] as number;
    if (shape === NONE) return '';
    if (shape === WORDS) return this.#texts.get(row) ?? '';
    return spelled(this.values[row] as number, this.#known[shape - 1] as Shape);
  }
}

const SHAPE = /^([^\d.+-]*)[+-]?\d*(?:\.(\d+))?(?:[eE][+-]?\d+)?(\D*)$/;

function shapeOf(text: string): Shape | null {
  const found = text.length <= 40 ? SHAPE.exec(text) : null;
  if (!found) return null;
  return { before: found[1] as string, digits: /[eE][+-]?\d/.test(text) ? null : (found[2] ?? '').length, after: found[3] as string };
}

function spelled(value: number, { before, digits, after }: Shape): string {
  return `${before}${digits === null || digits > 100 || Math.abs(value) >= 1e21 ? value : value.toFixed(digits)}${after}`;
}

interface Block {
  times: Float64Array;
  length: number;
  cells: Map<Column, Cells>;
}

/** One series: a numeric output of a source. */
export class Column {
  unit: string;
  /** Whether the device says the unit itself. */
  #isSaid = false;
  /** Why the newest sample has no place on the axis, and how many had none. */
  problem: string | null = null;
  problems = 0;
  /** How a text was understood that can be understood in two ways. */
  note: string | null = null;
  /** The newest text, and its value, if it has one. */
  now: { text: string; value: number | null; time: number } | null = null;
  count = 0;

  constructor(readonly output: string) {
    this.unit = unitOfName(output);
  }

  /** The value on this column's axis; null where it has no place there. */
  read(text: string, time: number): number | null {
    const found = reading(text);
    let value: number | null = null;
    let why: string | null = null;
    if ('why' in found) why = found.why;
    else {
      if (found.unit !== '' && !this.#isSaid) [this.unit, this.#isSaid] = [found.unit, true];
      const power = conversion(found.unit, this.unit);
      if (power === null) why = `“${text}” has another unit than ${this.unit}`;
      else value = power === 0 ? found.value : Number(`${found.value}e${power}`) || found.value * 10 ** power;
      this.note = found.note ?? this.note;
    }
    this.problem = why;
    if (why !== null) this.problems += 1;
    else this.count += 1;
    this.now = { text, value, time };
    return value;
  }
}

/** Samples in time, of several series, with the device's own digits, in bounded memory. */
export class Samples {
  #blocks: Block[] = [];
  #bytes = 0;
  length = 0;
  /** How many rows were dropped. */
  dropped = 0;
  /** Rows that have no value, one for each gap. */
  gaps = 0;

  /** Adds a row. Times rise. A series without a text has no sample there; one whose text is no number keeps its text. */
  push(time: number, texts: ReadonlyMap<Column, string>): void {
    let block = this.#blocks.at(-1);
    if (!block || block.length === ROWS) {
      block = { times: new Float64Array(ROWS), length: 0, cells: new Map() };
      this.#blocks.push(block);
      this.#bytes += ROWS * 8;
      this.#drop();
    }
    const row = block.length++;
    block.times[row] = Math.max(time, (this.last ?? 0) + 1e-6);
    this.length += 1;
    this.last = block.times[row] as number;
    let isGap = true;
    for (const [column, written] of texts) {
      const text = plain(written).trim();
      let cells = block.cells.get(column);
      if (!cells) {
        cells = new Cells();
        block.cells.set(column, cells);
        this.#bytes += cells.bytes;
      }
      const before = cells.bytes;
      const value = column.read(text, time);
      cells.set(row, value ?? Number.NaN, text);
      this.#bytes += cells.bytes - before;
      if (value !== null) isGap = false;
    }
    if (isGap) this.gaps += 1;
    this.isAtGap = isGap;
  }

  /** The newest time. */
  last: number | null = null;
  /** Whether the newest row has no value. */
  isAtGap = false;

  get first(): number | null {
    return this.#blocks[0]?.times[0] ?? null;
  }

  #drop(): void {
    while (this.#blocks.length > 1 && (this.length > MOST_ROWS - ROWS || this.#bytes > MOST_BYTES)) {
      const gone = this.#blocks.shift() as Block;
      this.length -= gone.length;
      this.dropped += gone.length;
      this.#bytes -= ROWS * 8;
      for (const cells of gone.cells.values()) this.#bytes -= cells.bytes;
    }
  }

  forget(column: Column): void {
    for (const block of this.#blocks) {
      this.#bytes -= block.cells.get(column)?.bytes ?? 0;
      block.cells.delete(column);
    }
  }

  clear(): void {
    this.#blocks = [];
    this.#bytes = this.length = this.dropped = this.gaps = 0;
    this.last = null;
    this.isAtGap = false;
  }

  /**
   * What a chart draws between two times: all rows, or, where there are more than it has room for, the least and the most of each piece. One row
   * on each side belongs to it, so that lines go to the chart's edge.
   */
  read(columns: readonly Column[], from: number, to: number, room: number): { x: number[]; ys: (number | null)[][] } {
    const begin = Math.max(0, this.#rowAt(from) - 1);
    const end = Math.min(this.length, this.#rowAt(to) + 2);
    const x: number[] = [];
    const ys: (number | null)[][] = columns.map(() => []);
    const step = Math.max(1, Math.ceil((2 * (end - begin)) / Math.max(2, room)));
    if (end - begin <= room || step < 3) {
      this.#each(begin, end, 1, (block, start, stop) => {
        for (let row = start; row < stop; row++) x.push(block.times[row] as number);
        columns.forEach((column, at) => {
          const values = block.cells.get(column)?.values;
          const into = ys[at] as (number | null)[];
          for (let row = start; row < stop; row++) {
            const value = values ? (values[row] as number) : Number.NaN;
            into.push(value === value ? value : null);
          }
        });
      });
      return { x, ys };
    }
    this.#each(begin, end, step, (block, start, stop) => {
      const [first, last] = [block.times[start] as number, block.times[stop - 1] as number];
      x.push(first, Math.max(last, first + 1e-6));
      columns.forEach((column, at) => {
        const values = block.cells.get(column)?.values;
        let least = Number.POSITIVE_INFINITY;
        let most = Number.NEGATIVE_INFINITY;
        let leastAt = -1;
        let mostAt = -1;
        if (values) {
          for (let row = start; row < stop; row++) {
            const value = values[row] as number;
            if (value < least) {
              least = value;
              leastAt = row;
            }
            if (value > most) {
              most = value;
              mostAt = row;
            }
          }
        }
        const into = ys[at] as (number | null)[];
        if (leastAt < 0) into.push(null, null);
        else if (leastAt <= mostAt) into.push(least, most);
        else into.push(most, least);
      });
    });
    return { x, ys };
  }

  /** Pieces of at most `step` rows (all of a block for 1) between two rows. */
  #each(begin: number, end: number, step: number, act: (block: Block, start: number, stop: number) => void): void {
    let base = 0;
    for (const block of this.#blocks) {
      const [start, stop] = [Math.max(0, begin - base), Math.min(block.length, end - base)];
      const size = step === 1 ? ROWS : step;
      for (let at = start; at < stop; at += size) act(block, at, Math.min(stop, at + size));
      base += block.length;
    }
  }

  /** The first row at this time or later. */
  #rowAt(time: number): number {
    let base = 0;
    for (const block of this.#blocks) {
      if ((block.times[block.length - 1] as number) >= time) {
        let [low, high] = [0, block.length];
        while (low < high) {
          const middle = (low + high) >> 1;
          if ((block.times[middle] as number) < time) low = middle + 1;
          else high = middle;
        }
        return base + low;
      }
      base += block.length;
    }
    return base;
  }

  #row(row: number): [Block, number] | null {
    let base = 0;
    for (const block of this.#blocks) {
      if (row < base + block.length) return row < base ? null : [block, row - base];
      base += block.length;
    }
    return null;
  }

  /** The time of the row that is next to this time. */
  near(time: number): number | null {
    const after = this.#row(this.#rowAt(time));
    const before = this.#row(this.#rowAt(time) - 1);
    const [a, b] = [before && (before[0].times[before[1]] as number), after && (after[0].times[after[1]] as number)];
    if (a === null || b === null) return a ?? b;
    return time - a < b - time ? a : b;
  }

  /** The device's text at this time. */
  textAt(column: Column, time: number): string {
    const found = this.#row(this.#rowAt(time));
    return found && found[0].times[found[1]] === time ? (found[0].cells.get(column)?.text(found[1]) ?? '') : '';
  }

  /** The device's texts of the least and of the most value. */
  extremes(column: Column): { least: string; most: string } {
    let least: { value: number; text: string } | null = null;
    let most: { value: number; text: string } | null = null;
    for (const block of this.#blocks) {
      const cells = block.cells.get(column);
      if (!cells) continue;
      const { low, high } = extremesOf(cells, block.length);
      if (low >= 0 && (!least || isLess(cells.values[low] as number, cells.text(low), least.value, least.text))) least = { value: cells.values[low] as number, text: cells.text(low) };
      if (high >= 0 && (!most || isLess(most.value, most.text, cells.values[high] as number, cells.text(high)))) most = { value: cells.values[high] as number, text: cells.text(high) };
    }
    return { least: least?.text ?? '', most: most?.text ?? '' };
  }

  /** The last values of a series, for a small picture. */
  recent(column: Column, count: number): (number | null)[] {
    const found: (number | null)[] = [];
    for (let at = this.#blocks.length - 1; at >= 0 && found.length < count; at--) {
      const block = this.#blocks[at] as Block;
      const values = block.cells.get(column)?.values;
      for (let row = block.length - 1; row >= 0 && found.length < count; row--) {
        const value = values?.[row] ?? Number.NaN;
        found.push(value === value ? value : null);
      }
    }
    return found.reverse();
  }

  /** Rows as texts, a piece of many rows at a time. */
  *rows(columns: readonly Column[], cell: (text: string) => string): Generator<string> {
    for (const block of this.#blocks) {
      const cells = columns.map((column) => block.cells.get(column));
      let piece = '';
      for (let row = 0; row < block.length; row++) {
        piece += new Date((block.times[row] as number) * 1000).toISOString();
        for (const one of cells) piece += `,${one ? cell(one.text(row)) : ''}`;
        piece += '\r\n';
      }
      yield piece;
    }
  }
}

/** Kept with the cells while they do not change. */
const known = new WeakMap<Cells, { length: number; low: number; high: number }>();

function extremesOf(cells: Cells, length: number): { low: number; high: number } {
  const found = known.get(cells) ?? { length: 0, low: -1, high: -1 };
  for (; found.length < length; found.length++) {
    const row = found.length;
    const value = cells.values[row] as number;
    if (value !== value) continue;
    if (found.low < 0 || value < (cells.values[found.low] as number) || (value === cells.values[found.low] && isLess(value, cells.text(row), value, cells.text(found.low)))) found.low = row;
    if (found.high < 0 || value > (cells.values[found.high] as number) || (value === cells.values[found.high] && isLess(value, cells.text(found.high), value, cells.text(row)))) found.high = row;
  }
  known.set(cells, found);
  return found;
}

/** Whether a value is less than another, by all the digits of their texts where doubles are equal. */
function isLess(a: number, text: string, b: number, other: string): boolean {
  if (a !== b || text === other || Math.abs(a) < 2 ** 53) return a < b;
  const [left, right] = [decimal(text), decimal(other)];
  return left !== null && right !== null && compare(left, right) < 0;
}
