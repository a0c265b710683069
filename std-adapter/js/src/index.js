// A client for gevals extensions, without dependencies. This file and rig.js need nothing but the language, so that they run in browsers too;
// node.js starts programs and connects to servers.

import { defaults, endOfObject, idOf, isObject, members, must, ofError, ofLog, ofResult, topLevel } from './rig.js';

export { number, within } from './number.js';
export { LINE_LIMIT, Rig, RiglineError, duration, must, ofError, ofLog, ofResult, toJson } from './rig.js';

/** How many places of a damaged line are tried as the beginning of a message. */
const CANDIDATES = 8;

/** The host's half of a session, without I/O: makes request lines, and says what each line that comes back is. */
export class Session {
  #first;
  #next;
  #pending = new Map();
  #decoder = new TextDecoder('utf-8');

  constructor(base = 0) {
    must('base', base, 'number');
    this.#first = this.#next = (base & 0x3fffffff) + 1;
  }

  /** A request's id, and its line with the newline. `params` is JSON text. */
  request(method, params) {
    must('method', method, 'string');
    must('params', params, 'string');
    const id = this.#next++;
    this.#pending.set(id, method);
    return { id, line: `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":${params}}\n` };
  }

  /** What a line is: a list of `{ reply }`, `{ log }`, `{ send }` and `{ noise }`, as several messages may stand on it. */
  receive(line) {
    must('line', line, 'string', 'Uint8Array');
    const events = [];
    const text = typeof line === 'string' ? line : this.#decoder.decode(line);
    let rest = text.replace(/^\uFEFF/, '').replace(/^[\s\0]+|[\s\0]+$/g, '');
    while (rest !== '') rest = this.#receive(rest, events);
    return events;
  }

  /** Adds what the text begins with, and gives what is left of it. */
  #receive(text, events) {
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      return this.#recover(text, error.message, events);
    }
    this.#classify(value, text, events);
    return '';
  }

  #recover(text, fault, events) {
    let damaged = text;
    let place = 0;
    for (const { index: at } of text.matchAll(/\{[ \t\r]*"/g)) {
      if (place++ >= CANDIDATES) break;
      const end = endOfObject(text, at);
      if (end < 0) {
        if (!damaged.startsWith('{') && text.indexOf('"jsonrpc"', at) >= 0) damaged = text.slice(at);
        continue;
      }
      const rest = text.slice(end).trimStart();
      // It is part of something larger.
      if (at > 0 && /^[}\],"]/.test(rest)) continue;
      let value;
      try {
        value = JSON.parse(text.slice(at, end));
      } catch (error) {
        if (!damaged.startsWith('{')) [damaged, fault] = [text.slice(at), error.message];
        continue;
      }
      if (at > 0 && value.jsonrpc !== '2.0') continue;
      if (at > 0) events.push({ noise: text.slice(0, at) });
      this.#classify(value, text.slice(at, end), events);
      return rest;
    }
    events.push({ noise: text });
    let id = null;
    for (const [key, at] of topLevel(damaged)) {
      // A damaged notification or request fails no call.
      if (key === 'method') return '';
      if (key === 'id' && id === null) id = Number.parseInt(damaged.slice(at, at + 20), 10);
    }
    if (this.#pending.has(id)) this.#finish(id, { kind: 'invalid', error: `the answer is not JSON: ${fault}` }, events);
    return '';
  }

  #classify(value, text, events) {
    if (!isObject(value)) return void events.push({ noise: text });
    const versioned = value.jsonrpc === '2.0';
    if (Object.hasOwn(value, 'method')) return this.#fromPeer(value, text, versioned, events);
    const id = idOf(value.id);
    const isOurs = this.#pending.has(id);
    if (value.error !== undefined && value.error !== null) {
      const answer = ofError(value.error);
      if (isOurs) return this.#finish(id, answer, events);
      // The peer could not read a request (JSON-RPC 2.0, section 5): it must be the one that is out.
      const unaddressed = (value.id === undefined || value.id === null) && (versioned || answer.code !== null);
      if (unaddressed && this.#pending.size === 1) return this.#finish([...this.#pending.keys()][0], answer, events);
      return void events.push({ noise: text });
    }
    if (!isOurs) return void events.push({ noise: text });
    if (!Object.hasOwn(value, 'result')) {
      return this.#finish(id, { kind: 'invalid', error: 'the answer has neither a result nor an error' }, events);
    }
    const isCall = this.#pending.get(id) === 'execute';
    this.#finish(id, isCall ? ofResult(value.result, text) : { kind: 'success', result: value.result }, events);
  }

  #fromPeer(value, text, versioned, events) {
    const { method, params } = value;
    if (typeof method !== 'string') return void events.push({ noise: text });
    if (Object.hasOwn(value, 'id') && versioned) {
      const own = idOf(value.id);
      const isOwn = own !== null && own >= this.#first && own < this.#next;
      if (isOwn && ['initialize', 'execute', 'shutdown'].includes(method)) return void events.push({ noise: text });
      const error = { code: -32601, message: `Unknown method: ${[...method.slice(0, 128)].slice(0, 64).join('')}` };
      const raw = members(text).findLast(([key]) => key === 'id')[1];
      return void events.push({ send: `{"jsonrpc":"2.0","id":${raw},"error":${JSON.stringify(error)}}\n` });
    }
    if (method === 'log' && (versioned || isObject(params))) return void events.push({ log: ofLog(params) });
    events.push({ noise: text });
  }

  #finish(id, answer, events) {
    this.#pending.delete(id);
    events.push({ reply: { id, answer } });
  }
}
defaults.session = (base) => new Session(base);
