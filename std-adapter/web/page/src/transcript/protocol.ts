// What the page and its worker say to each other.

export const STATES = ['open', 'ok', 'error', 'fault', 'other'] as const;
/** `open`: there is no answer. `other`: something that has none, such as a log outside of calls. */
export type CardState = (typeof STATES)[number];

export interface Filter {
  text: string;
  state: CardState | 'all' | 'logs';
  /** A name out of `names`; null: all. */
  name: number | null;
}

/** Whether a filter lets every card through. */
export function isOpen({ text, state, name }: Filter): boolean {
  return text === '' && state === 'all' && name === null;
}

export interface Progress {
  read: number;
  size: number;
  lines: number;
  cards: number;
  faults: number;
  names: string[];
  target: string | null;
  isDone: boolean;
}

export interface Row {
  card: number;
  /** Of the card's first line, from 1. */
  line: number;
  name: string;
  state: CardState;
  protocol: string;
  logs: number;
  faults: number;
  /** In milliseconds; null where the file does not say it. */
  duration: number | null;
  /** The request's text, or what is wrong with the line. */
  text: string;
}

export interface Part {
  line: number;
  kind: string;
  direction: string | null;
  time: number | null;
  raw: string;
  /** How many bytes or characters of it are left out here. */
  cut: number;
  fault: { position: number; reason: string } | null;
}

export interface Detail extends Row {
  parts: Part[];
  /** How many lines of the card are not listed. */
  more: number;
}

export type Ask =
  | { do: 'open'; file: Blob }
  | { do: 'filter'; filter: Filter }
  | { do: 'rows'; from: number; to: number; turn: number }
  | { do: 'detail'; at: number; turn: number };

export type Tell =
  | ({ said: 'progress' } & Progress)
  | { said: 'filtered'; count: number; isSearching: boolean }
  | { said: 'rows'; from: number; rows: Row[]; turn: number }
  | { said: 'detail'; at: number; detail: Detail | null; turn: number }
  | { said: 'failed'; why: string };
