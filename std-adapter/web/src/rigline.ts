// The rigline parser and client in WebAssembly, for browsers and Node.
//
// Load the module once with `await load()`. Each Decoder and each Client then has its own instance, whose memory is freed with it.

import { defaults, must, ofError, ofLog, ofResult } from '../../js/src/rig.js';
import type { Event } from '../../js/src/index.js';

export { Rig, RiglineError, duration, toJson } from '../../js/src/rig.js';
export type { Answer, CallOptions, Event, Json, Kind as ErrorKind, Log, Manifest, Operation, Options, Result, Transport } from '../../js/src/index.js';
export { webSerial, webSocket } from './transports.js';
export type { Port, WebSerialOptions } from './transports.js';

/** Whose a message is. */
export type Protocol = 'gevals' | 'amplifier' | 'namel3ss' | 'waza' | 'mcp';

/**
 * What a line is. `reply` is an answer that says yes, `error` one that says no: a JSON-RPC error, `ok: false` or `success: false`. `event`
 * is an entry of an Amplifier event log, `json` is JSON that is no message, and `fault` is no JSON, or a line that is too long.
 */
export type Kind = 'request' | 'notification' | 'log' | 'reply' | 'error' | 'event' | 'batch' | 'json' | 'fault';

/** What is wrong with a text. */
export interface Fault {
  /** Where: the offset in bytes of the byte that cannot stand there. */
  readonly position: number;
  /** Its kind, such as `unexpected-end`, `not-utf8` or `too-long`. */
  readonly kind: string;
  /** It in words. */
  readonly reason: string;
}

const KINDS: readonly Kind[] = ['request', 'notification', 'log', 'reply', 'error', 'event', 'batch', 'json', 'fault'];
const PROTOCOLS: readonly (Protocol | null)[] = [null, 'gevals', 'amplifier', 'namel3ss', 'waza', 'mcp'];

/** Words of a record, as decoder.rs has them. */
const FIELDS = 16;
const RECEIVED = 1 << 16;
const SENT = 1 << 17;
const SPILLED = 1 << 18;

/** How many bytes are decoded at once. */
const PIECE = 1 << 20;
/** The longest line that is taken where nothing else is said, in bytes. */
const LIMIT = 16 << 20;

interface Exports {
  readonly memory: WebAssembly.Memory;
  buffer(size: number): number;
  reset(limit: number, serial: number): void;
  feed(): number;
  finish(): number;
  records(): number;
  spilled(): number;
  spilled_length(): number;
  validate(): bigint;
  fault(kind: number, length: number, limit: number): number;
  text(): number;
  text_length(): number;
  client(base: number): void;
  request(method: number): number;
  receive(): number;
  incoming(): number;
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

let compiled: WebAssembly.Module | null = null;
let shared: Exports | null = null;

/**
 * Loads the module, once. Without a source it is the file `rigline_web.wasm` beside this one. A worker is best given what `module()` gives
 * here, so that it need not compile it again.
 */
export async function load(source: URL | string | ArrayBuffer | ArrayBufferView<ArrayBuffer> | WebAssembly.Module = new URL('./rigline_web.wasm', import.meta.url)): Promise<void> {
  if (compiled) return;
  if (source instanceof WebAssembly.Module) compiled = source;
  else if (source instanceof URL || typeof source === 'string') compiled = await fromUrl(new URL(source, import.meta.url));
  else compiled = await WebAssembly.compile(source);
}

async function fromUrl(url: URL): Promise<WebAssembly.Module> {
  if (url.protocol === 'file:') {
    const { process } = globalThis as { process?: { getBuiltinModule?(name: string): { readFileSync(url: URL): BufferSource } } };
    if (process?.getBuiltinModule) return WebAssembly.compile(process.getBuiltinModule('node:fs').readFileSync(url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url.pathname} cannot be loaded: status ${response.status}`);
  // Compiling as it comes needs a media type that not every server gives.
  if (response.headers.get('content-type')?.startsWith('application/wasm')) return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}

/** The compiled module, to be handed to a worker. */
export function module(): WebAssembly.Module {
  if (!compiled) throw new Error('the module is not loaded: `await load()` first');
  return compiled;
}

function instance(): Exports {
  return new WebAssembly.Instance(module(), {}).exports as unknown as Exports;
}

function write(wasm: Exports, ...parts: Uint8Array[]): void {
  let at = wasm.buffer(parts.reduce((sum, part) => sum + part.length, 0));
  for (const part of parts) {
    new Uint8Array(wasm.memory.buffer, at, part.length).set(part);
    at += part.length;
  }
}

function textOf(wasm: Exports, length: number): string {
  return decoder.decode(new Uint8Array(wasm.memory.buffer, wasm.text(), length));
}

const faults = new Map<number, { kind: string; reason: string }>();

/** What a fault is. A line that is too long has its length in `position`. */
function faultOf(number: number, position: number, limit: number): Fault {
  const isTooLong = number === 11;
  let known = isTooLong ? undefined : faults.get(number);
  if (!known) {
    shared ??= instance();
    const [kind = '', reason = ''] = textOf(shared, shared.fault(number, position, limit)).split('\n');
    known = { kind, reason };
    if (!isTooLong) faults.set(number, known);
  }
  return { position: isTooLong ? limit : position, ...known };
}

/** Checks that a text is one JSON text (RFC 8259, with at most 128 containers open at once); gives what is wrong with it. */
export function validate(text: string | Uint8Array): Fault | null {
  must('text', text, 'string', 'Uint8Array');
  shared ??= instance();
  write(shared, typeof text === 'string' ? encoder.encode(text) : text);
  const found = shared.validate();
  return found === 0n ? null : faultOf(Number(found >> 32n), Number(found & 0xffffffffn), 0);
}

/** A short text of ASCII without escapes; null for others. For these a TextDecoder takes several times as long. */
function plain(source: Uint8Array, start: number, end: number): string | null {
  if (end - start > 32) return null;
  let text = '';
  for (let at = start; at < end; at += 1) {
    const byte = source[at] ?? 0;
    if (byte >= 0x80 || byte === 0x5c) return null;
    text += String.fromCharCode(byte);
  }
  return text;
}

/** A line of a stream. Its texts are made when they are asked for. */
export class Message {
  #source: Uint8Array;
  #words: Uint32Array;
  #at: number;
  #limit: number;

  /** Only decoders make messages. */
  constructor(source: Uint8Array, words: Uint32Array, at: number, limit: number) {
    this.#source = source;
    this.#words = words;
    this.#at = at;
    this.#limit = limit;
  }

  #word(field: number): number {
    return this.#words[this.#at + field] ?? 0;
  }

  /** The string whose JSON text stands there. */
  #string(field: number): string | null {
    const length = this.#word(field + 1);
    if (length === 0) return null;
    const start = this.#word(2) + this.#word(field);
    return plain(this.#source, start + 1, start + length - 1) ?? (JSON.parse(this.#part(field) ?? '""') as string);
  }

  #part(field: number): string | null {
    const length = this.#word(field + 1);
    if (length === 0) return null;
    const start = this.#word(2) + this.#word(field);
    return plain(this.#source, start, start + length) ?? decoder.decode(this.#source.subarray(start, start + length));
  }

  get kind(): Kind {
    return KINDS[this.#word(0) & 0xff] ?? 'json';
  }

  get protocol(): Protocol | null {
    return PROTOCOLS[(this.#word(0) >> 8) & 0xff] ?? null;
  }

  /** The line's number in the stream, from 1. Blank lines count. */
  get number(): number {
    return this.#word(1);
  }

  /** Where the line's content begins in the stream, in bytes. */
  get offset(): number {
    return this.#word(12) + this.#word(13) * 2 ** 32;
  }

  /** How many bytes of the stream the line's content has, white space before its end apart. */
  get length(): number {
    return this.#word(14);
  }

  /** The line; of an entry of a recording, the line that was recorded. Empty for a line that is too long. */
  get bytes(): Uint8Array {
    return this.#source.subarray(this.#word(2), this.#word(2) + this.#word(3));
  }

  /** It as a text. What is not UTF-8 becomes U+FFFD. */
  get raw(): string {
    return decoder.decode(this.bytes);
  }

  /** The method; Amplifier's `op`, namel3ss's tool, or the event's name. */
  get method(): string | null {
    return this.#string(4);
  }

  /** What is called: the operation, tool or eval. */
  get operation(): string | null {
    return this.#string(6);
  }

  /** The id's JSON text, as it came. */
  get id(): string | null {
    return this.#part(8);
  }

  get fault(): Fault | null {
    return this.#word(10) === 0 ? null : faultOf(this.#word(10), this.#word(11), this.#limit);
  }

  /** Of an entry of what `rigline monitor --record` writes: which way the line went, and when, in milliseconds from the beginning. */
  get recorded(): { readonly direction: 'sent' | 'received'; readonly time: number } | null {
    const flags = this.#word(0);
    if ((flags & (SENT | RECEIVED)) === 0) return null;
    return { direction: flags & SENT ? 'sent' : 'received', time: this.#word(15) };
  }

  /** Copies what it needs, so that the bytes around it can be freed. A message that is kept for long should be. */
  detach(): this {
    this.#source = this.bytes.slice();
    this.#words = this.#words.slice(this.#at, this.#at + FIELDS);
    this.#words[2] = 0;
    this.#at = 0;
    return this;
  }
}

/** Decodes a stream of lines, however its bytes are cut. */
export class Decoder {
  #wasm = instance();
  #limit: number;
  #serial: boolean;

  /** `limit`: the longest line, in bytes (16 MiB). `serial`: a lone CR ends a line too, as terminals on serial ports send it. */
  constructor({ limit = LIMIT, serial = false }: { limit?: number; serial?: boolean } = {}) {
    must('limit', limit, 'number');
    must('serial', serial, 'boolean');
    if (!(limit > 0 && limit < 2 ** 31)) throw new RangeError(`limit must be from 1 to 2147483647, not ${limit}`);
    this.#limit = limit;
    this.#serial = serial;
    this.reset();
  }

  /** Takes the next bytes, and gives the lines that are whole now. The bytes are copied. */
  push(bytes: Uint8Array): Message[] {
    must('bytes', bytes, 'Uint8Array');
    const messages: Message[] = [];
    for (let at = 0; at < bytes.length; at += PIECE) {
      const piece = bytes.slice(at, at + PIECE);
      write(this.#wasm, piece);
      this.#take(this.#wasm.feed(), piece, messages);
    }
    return messages;
  }

  /** The stream has ended: gives its last line, if no newline ends it. */
  end(): Message[] {
    const messages: Message[] = [];
    this.#take(this.#wasm.finish(), new Uint8Array(), messages);
    return messages;
  }

  /** Forgets everything, for a new stream. */
  reset(): void {
    this.#wasm.reset(this.#limit, this.#serial ? 1 : 0);
  }

  #take(count: number, piece: Uint8Array, messages: Message[]): void {
    if (count === 0) return;
    const wasm = this.#wasm;
    const words = new Uint32Array(wasm.memory.buffer, wasm.records(), count * FIELDS).slice();
    const length = wasm.spilled_length();
    const spilled = length === 0 ? piece : new Uint8Array(wasm.memory.buffer, wasm.spilled(), length).slice();
    for (let at = 0; at < words.length; at += FIELDS) {
      const source = (words[at] ?? 0) & SPILLED ? spilled : piece;
      messages.push(new Message(source, words, at, this.#limit));
    }
  }
}

/** Words of a record, as client.rs has them. */
const INCOMING = 6;
const enum What {
  Noise,
  Result,
  Error,
  Invalid,
  Log,
  Refused,
}

/** The host's half of a session, without I/O. `Rig.open(transport, { session: new Client() })` has a session with it. */
export class Client {
  #wasm = instance();
  #methods = new Map<number, string>();

  /** Ids begin behind `base`: for servers that outlive the client it should be random. */
  constructor(base = 0) {
    must('base', base, 'number');
    this.#wasm.client(base);
  }

  /** A request's id, and its line with the newline. `params` is JSON text. Up to eight requests may be out. */
  request(method: string, params: string): { id: number; line: string } {
    must('method', method, 'string');
    must('params', params, 'string');
    const name = encoder.encode(method);
    write(this.#wasm, name, encoder.encode(params));
    const id = this.#wasm.request(name.length);
    if (id === 0) {
      const fault = validate(params);
      throw new Error(fault ? `params: ${fault.reason} at byte ${fault.position}` : 'too many requests wait for their replies');
    }
    this.#methods.set(id, method);
    return { id, line: textOf(this.#wasm, this.#wasm.text_length()) };
  }

  /** What a line is: a list of `{ reply }`, `{ log }`, `{ send }` and `{ noise }`, as several messages may stand on it. */
  receive(line: string | Uint8Array): Event[] {
    must('line', line, 'string', 'Uint8Array');
    const wasm = this.#wasm;
    const bytes = typeof line === 'string' ? encoder.encode(line) : line;
    // What goes before the text is what the module takes off too, so that places are those in these bytes.
    const mark = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
    write(wasm, bytes);
    const count = wasm.receive();
    const words = new Uint32Array(wasm.memory.buffer, wasm.incoming(), count * INCOMING).slice();
    const said = new Uint8Array(wasm.memory.buffer, wasm.text(), wasm.text_length()).slice();
    const events: Event[] = [];
    for (let at = 0; at < words.length; at += INCOMING) {
      const [what = 0, id = 0, start = 0, length = 0, from = 0, size = 0] = words.subarray(at, at + INCOMING);
      const text = decoder.decode(bytes.subarray(mark + start, mark + start + length));
      events.push(this.#event(what, id, text, decoder.decode(said.subarray(from, from + size))));
    }
    return events;
  }

  #event(what: What, id: number, text: string, words: string): Event {
    if (what === What.Log) return { log: ofLog((JSON.parse(text) as { params?: unknown }).params) };
    if (what === What.Refused) return { send: words };
    if (what === What.Noise) return { noise: text };
    const isCall = this.#methods.get(id) === 'execute';
    this.#methods.delete(id);
    if (what === What.Invalid) return { reply: { id, answer: { kind: 'invalid', error: words } } };
    const { result, error } = JSON.parse(text) as { result?: unknown; error?: unknown };
    if (what === What.Error) return { reply: { id, answer: ofError(error) } };
    return { reply: { id, answer: isCall ? ofResult(result, text) : { kind: 'success', result } } };
  }
}

defaults.session = (base) => new Client(base);
