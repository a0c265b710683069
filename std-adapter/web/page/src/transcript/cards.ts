import type { Message } from '../rigline';
import { type CardState, STATES } from './protocol';
import { Table } from './table';

export const NONE = -1;
/** How many names of operations and events are told apart. */
const NAMES = 2000;

/** The names of messages' kinds, directions and protocols, by their numbers in the table. */
export const KINDS = ['request', 'notification', 'log', 'reply', 'error', 'event', 'batch', 'json', 'fault'];
export const DIRECTIONS = ['', 'sent', 'received'];
export const PROTOCOLS = ['', 'gevals', 'amplifier', 'namel3ss', 'waza', 'mcp'];

/** Puts the lines of a transcript together to calls. Of a line it keeps where it is, not what it says. */
export class Cards {
  readonly lines = new Table({ offset: Float64Array, length: Uint32Array, number: Uint32Array, kind: Uint8Array, next: Int32Array, card: Int32Array, time: Float64Array, direction: Uint8Array, fault: Uint8Array, position: Uint32Array });
  readonly cards = new Table({ first: Int32Array, last: Int32Array, name: Uint32Array, state: Uint8Array, protocol: Uint8Array, logs: Uint32Array, faults: Uint32Array, duration: Float64Array });
  readonly names: string[] = [];
  /** What is wrong with lines, by its number in the table; 0 is nothing. */
  readonly reasons: string[] = [''];
  faults = 0;
  /** The target that the transcript's head names. */
  target: string | null = null;

  /** Whether the lines are those of a recording, which also says what happened to the connection. */
  #isRecording = false;
  readonly #numbers = new Map<string, number>();
  /** Cards without an answer, by the id's text. */
  readonly #byId = new Map<string, number>();
  /** Those whose protocol has no ids, oldest first, by the protocol. */
  readonly #inTurn = new Map<string, number[]>();
  /** All requests without an answer, oldest first: logs belong to the oldest. */
  readonly #open = new Set<number>();
  /** Amplifier's events by the request that they are about. */
  readonly #byRequest = new Map<string, number>();

  add(message: Message): void {
    if (message.number === 1 && message.kind === 'json' && this.#isHead(message.raw)) return;
    const happened = this.#isRecording && message.recorded === null ? json(message.raw) : null;
    // That a connection was opened or closed says nothing about a call.
    if (happened !== null && (happened.event === 'open' || happened.event === 'closed')) return;
    const time = message.recorded?.time ?? Number.NaN;
    const line = this.lines.add({
      offset: message.offset,
      length: message.length,
      number: message.number,
      kind: Math.max(0, KINDS.indexOf(message.kind)),
      next: NONE,
      card: NONE,
      time,
      direction: message.recorded === null ? 0 : DIRECTIONS.indexOf(message.recorded.direction),
      fault: message.fault === null ? 0 : this.#reasonNumber(message.fault.reason),
      position: message.fault?.position ?? 0,
    });
    if (message.fault !== null) {
      this.faults += 1;
      const card = this.#begin(line, 'a damaged line', 'fault', message);
      this.cards.set('faults', card, 1);
      return;
    }
    if (happened !== null && typeof happened.ms === 'number') {
      const why = typeof happened.why === 'string' ? `: ${happened.why}` : '';
      if (happened.event === 'gone') this.#begin(line, `the connection was lost${why}`, 'other', message);
      else if (happened.event === 'unopened') this.#begin(line, `there was no connection${why}`, 'other', message);
      else this.#log(line, message);
      return;
    }
    switch (message.kind) {
      case 'request':
        return this.#request(line, message);
      case 'reply':
      case 'error':
        return this.#answer(line, message, time);
      case 'log':
        return this.#log(line, message);
      case 'event':
        return this.#event(line, message);
      default:
        this.#begin(line, message.method ?? (message.kind === 'batch' ? 'a batch' : 'a line without a message'), 'other', message);
    }
  }

  stateOf(card: number): CardState {
    return STATES[this.cards.get('state', card)] as CardState;
  }

  #isHead(raw: string): boolean {
    if (!raw.includes('"rigline"')) return false;
    const head = json(raw);
    if (head?.rigline !== 'transcript') return false;
    this.target = typeof head.target === 'string' ? head.target : null;
    this.#isRecording = true;
    return true;
  }

  #begin(line: number, name: string, state: CardState, message: Message): number {
    const card = this.cards.add({
      first: line,
      last: line,
      name: this.#nameNumber(name),
      state: STATES.indexOf(state),
      protocol: Math.max(0, PROTOCOLS.indexOf(message.protocol ?? '')),
      logs: 0,
      faults: 0,
      duration: Number.NaN,
    });
    this.lines.set('card', line, card);
    return card;
  }

  #append(card: number, line: number): void {
    this.lines.set('next', this.cards.get('last', card), line);
    this.lines.set('card', line, card);
    this.cards.set('last', card, line);
  }

  #request(line: number, message: Message): void {
    const name = message.operation ?? message.method ?? 'a request';
    const card = this.#begin(line, name, 'open', message);
    this.#open.add(card);
    if (message.id !== null) this.#byId.set(message.id, card);
    else {
      const protocol = message.protocol ?? '';
      const waiting = this.#inTurn.get(protocol) ?? [];
      waiting.push(card);
      this.#inTurn.set(protocol, waiting);
    }
  }

  #answer(line: number, message: Message, time: number): void {
    const card = this.#asked(message);
    const state = message.kind === 'reply' ? 'ok' : 'error';
    if (card === undefined) {
      this.#begin(line, 'an answer to nothing that was asked', state, message);
      return;
    }
    this.#append(card, line);
    this.#open.delete(card);
    this.cards.set('state', card, STATES.indexOf(state));
    this.cards.set('duration', card, time - this.lines.get('time', this.cards.get('first', card)));
  }

  #asked(message: Message): number | undefined {
    if (message.id !== null && message.id !== 'null') {
      const card = this.#byId.get(message.id);
      this.#byId.delete(message.id);
      return card;
    }
    if (message.id === 'null') return undefined;
    const own = this.#inTurn.get(message.protocol ?? '');
    if (own && own.length > 0) return own.shift();
    // An answer whose protocol does not show belongs to the only kind of request that waits.
    const others = [...this.#inTurn.values()].filter((waiting) => waiting.length > 0);
    return others.length === 1 ? others[0]?.shift() : undefined;
  }

  #log(line: number, message: Message): void {
    const [oldest] = this.#open;
    if (oldest === undefined) {
      this.#begin(line, 'a log outside of calls', 'other', message);
      return;
    }
    this.#append(oldest, line);
    this.cards.set('logs', oldest, this.cards.get('logs', oldest) + 1);
  }

  #event(line: number, message: Message): void {
    const event = json(message.raw);
    const text = (value: unknown) => (typeof value === 'string' && value !== '' ? value : null);
    const data = typeof event?.data === 'object' && event.data !== null ? (event.data as Record<string, unknown>) : {};
    const request = text(event?.request_id) ?? text(event?.span_id);
    const seconds = event?.ts;
    if (typeof seconds === 'number') this.lines.set('time', line, seconds * 1000);
    else if (typeof seconds === 'string') this.lines.set('time', line, timeOf(seconds));
    let card = request === null ? undefined : this.#byRequest.get(request);
    if (card === undefined) {
      const name = [message.method ?? 'an event', text(event?.module), text(data.op)].filter((part) => part !== null).join(' ');
      card = this.#begin(line, name, 'other', message);
      if (request !== null) this.#byRequest.set(request, card);
    } else {
      this.#append(card, line);
      this.cards.set('logs', card, this.cards.get('logs', card) + 1);
    }
    if (event?.status === 'ok' && this.stateOf(card) !== 'error') this.cards.set('state', card, STATES.indexOf('ok'));
    else if (typeof event?.status === 'string' && event.status !== 'ok') this.cards.set('state', card, STATES.indexOf('error'));
    if (typeof event?.duration_ms === 'number') this.cards.set('duration', card, event.duration_ms);
  }

  #reasonNumber(reason: string): number {
    const known = this.reasons.indexOf(reason, 1);
    if (known > 0) return known;
    return this.reasons.length > 255 ? 255 : this.reasons.push(reason) - 1;
  }

  #nameNumber(name: string): number {
    // A hostile file could have a new name in each line.
    const isKnown = this.#numbers.has(name.slice(0, 200));
    const kept = isKnown || this.names.length < NAMES ? name.slice(0, 200) : '(other names)';
    let number = this.#numbers.get(kept);
    if (number === undefined) {
      number = this.names.push(kept) - 1;
      this.#numbers.set(kept, number);
    }
    return number;
  }
}

/** In milliseconds. */
function timeOf(time: string): number {
  const number = Number(time);
  return Number.isFinite(number) ? number : Date.parse(time);
}

function json(raw: string): Record<string, unknown> | null {
  try {
    const value = JSON.parse(raw) as unknown;
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
