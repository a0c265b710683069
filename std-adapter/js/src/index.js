// A client for gevals extensions, without dependencies. This file needs nothing but the language, so that it runs in browsers too;
// node.js starts programs and connects to servers.

const VERSION = '0.0.1';
/** The longest line that is taken from a peer, in bytes. */
export const LINE_LIMIT = 16 * 1024 * 1024;
/** How long the extension's own timeout error may take beyond the call's timeout, in milliseconds. No other answer counts then. */
const GRACE = 2000;
/** How many places of a damaged line are tried as the beginning of a message. */
const CANDIDATES = 8;
/** The longest time that setTimeout takes, in milliseconds: a longer one would be over at once. */
const LONGEST_TIMER = 2 ** 31 - 1;

/** Anything that goes wrong; `kind` says what. */
export class RiglineError extends Error {
  constructor(kind, message, details = {}) {
    super(details.operation ? `${details.operation}: ${message}` : message);
    this.name = 'RiglineError';
    this.kind = kind;
    this.text = message;
    Object.assign(this, { operation: null, code: null, data: null, result: null }, details);
  }
}

const KINDS = new Map([
  [-32601, 'unknown-operation'],
  [-32602, 'bad-arguments'],
  [-32603, 'internal'],
  [-32000, 'unreachable'],
  [-32001, 'timeout'],
  [-32002, 'requirement'],
]);

/** The host's half of a session, without I/O: makes request lines, and says what each line that comes back is. */
export class Session {
  #first;
  #next;
  #pending = new Map();
  #decoder = new TextDecoder('utf-8');

  constructor(base = 0) {
    this.#first = this.#next = (base & 0x3fffffff) + 1;
  }

  /** A request's id, and its line with the newline. `params` is JSON text. */
  request(method, params) {
    const id = this.#next++;
    this.#pending.set(id, method);
    return { id, line: `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)},"params":${params}}\n` };
  }

  /** What a line is: a list of `{ reply }`, `{ log }`, `{ send }` and `{ noise }`, as several messages may stand on it. */
  receive(line) {
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

/** A session with an extension over a transport: anything with `send(text)`, `close()` and settable `onData` and `onEnd`. */
export class Rig {
  #transport;
  #session;
  #waiting = new Map();
  #parts = [];
  #size = 0;
  #lost = null;
  #turn = Promise.resolve();
  #options;

  /** The manifest, as it came. */
  manifest = null;

  constructor(transport, options = {}) {
    this.#transport = transport;
    this.#options = { timeout: 30, startTimeout: 10, workdir: '', onLog: () => {}, onNoise: () => {}, ...options };
    this.#session = options.session ?? new Session(options.base ?? 0);
    transport.onData = (data) => this.#data(data);
    transport.onEnd = (why) => this.#end(new RiglineError('lost', why || 'the connection is gone'));
  }

  /** Opens the session; gives the rig. */
  static async open(transport, options = {}) {
    const rig = new Rig(transport, options);
    try {
      const config = options.config === undefined ? '' : `,"config":${toJson(options.config, 'config')}`;
      const params = `{"protocolVersion":"${VERSION}"${config}}`;
      const answer = await rig.#ask('initialize', params, rig.#options.startTimeout * 1000);
      if (answer.kind === 'refused') throw refusal(answer);
      if (answer.kind !== 'success' || !isObject(answer.result)) {
        throw new RiglineError('invalid', answer.error ?? 'the manifest is not an object');
      }
      rig.manifest = answer.result;
    } catch (error) {
      await rig.close();
      throw error;
    }
    return rig;
  }

  /**
   * Calls an operation; gives `{ message, outputs, logs }`. Throws a RiglineError, of kind `failed` where the operation says that
   * it failed. Calls take turns. `signal` (an AbortSignal) and the timeout, in seconds, cut the call off: the session ends then, and
   * the rig brings about its safe state.
   */
  async call(operation, args = {}, options = {}) {
    const { timeout = this.#options.timeout, phase = '', env, workdir = this.#options.workdir, signal } = options;
    const context = { workdir, phase, ...(env && { env }), timeout: duration(timeout) };
    const written = toJson(args);
    const done = this.#turn.then(async () => {
      if (signal?.aborted) throw new RiglineError('cancelled', 'the call was cancelled', { operation });
      operation = spelled(operation, this.manifest?.operations);
      const params = `{"operation":${JSON.stringify(operation)},"args":${written},"context":${JSON.stringify(context)}}`;
      const logs = [];
      const began = performance.now();
      const answer = await this.#ask('execute', params, timeout * 1000 + GRACE, { operation, logs, signal });
      const took = performance.now() - began;
      if (took > timeout * 1000 && !(answer.kind === 'refused' && refusal(answer).kind === 'timeout')) {
        const said = answer.message ?? answer.error ?? '';
        const text = `the answer came after ${(took / 1000).toFixed(3)} s, beyond the time limit of ${timeout} s${said && `; it said: ${said}`}`;
        throw new RiglineError('timeout', text, { operation });
      }
      const result = { message: answer.message ?? '', outputs: answer.outputs ?? new Map(), logs };
      if (answer.kind === 'success') return result;
      if (answer.kind === 'failed') throw new RiglineError('failed', answer.error, { operation, result });
      if (answer.kind === 'refused') throw refusal(answer, operation);
      throw new RiglineError('invalid', answer.error, { operation });
    });
    this.#turn = done.catch(() => {});
    return done;
  }

  /** Ends the session. Outputs are switched off, unless `keep` leaves the hardware as it is. */
  async close({ keep = false } = {}) {
    if (keep && !this.#lost) await this.#ask('shutdown', '{}', 5000).catch(() => {});
    this.#end(new RiglineError('closed', 'the rig was closed'));
    await this.#transport.close();
  }

  #ask(method, params, patience, { operation = null, logs = null, signal = null } = {}) {
    if (this.#lost) return Promise.reject(this.#lost);
    const { id, line } = this.#session.request(method, params);
    return new Promise((resolve, reject) => {
      const cut = (kind, text) => {
        this.#end(new RiglineError(kind, text, { operation }));
        this.#transport.close();
      };
      const stopTimer = after(patience, () => cut('timeout', `no answer within ${patience / 1000} s`));
      const abort = () => cut('cancelled', 'the call was cancelled');
      signal?.addEventListener('abort', abort, { once: true });
      const settle = (act) => (value) => {
        stopTimer();
        signal?.removeEventListener('abort', abort);
        this.#waiting.delete(id);
        act(value);
      };
      this.#waiting.set(id, { resolve: settle(resolve), reject: settle(reject), logs });
      try {
        this.#transport.send(line);
      } catch (error) {
        cut('lost', `nothing can be sent: ${error instanceof Error ? error.message : error}`);
      }
    });
  }

  #data(data) {
    if (this.#lost) return;
    let from = 0;
    for (let at = data.indexOf(10); at >= 0; at = data.indexOf(10, from)) {
      this.#parts.push(data.subarray(from, at));
      this.#line();
      from = at + 1;
    }
    if (from < data.length) {
      // A transport may use its memory again.
      this.#parts.push(data.slice(from));
      this.#size += data.length - from;
    }
    if (this.#size > LINE_LIMIT) {
      this.#end(new RiglineError('invalid', `a line is longer than ${LINE_LIMIT} bytes`));
      this.#transport.close();
    }
  }

  #line() {
    const bytes = new Uint8Array(this.#parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of this.#parts) {
      bytes.set(part, at);
      at += part.length;
    }
    this.#parts = [];
    this.#size = 0;
    for (const { reply, send, noise, log } of this.#session.receive(bytes)) {
      if (reply) this.#waiting.get(reply.id)?.resolve(reply.answer);
      else if (send) this.#transport.send(send);
      else if (log) {
        for (const waiting of this.#waiting.values()) waiting.logs?.push(log);
        this.#options.onLog(log);
      } else this.#options.onNoise(noise);
    }
  }

  #end(error) {
    if (this.#lost) return;
    // The last line may lack its newline.
    if (error.kind === 'lost' && this.#size > 0) this.#line();
    this.#lost = error;
    for (const { reject } of [...this.#waiting.values()]) reject(error);
  }
}

/** A time span in seconds as Go's `time.Duration` prints it. */
export function duration(seconds) {
  if (typeof seconds !== 'number' || !Number.isFinite(seconds) || seconds <= 0 || seconds > 9.2e9) {
    throw new RangeError(`a timeout must be more than zero seconds, and at most 292 years; ${seconds} is not`);
  }
  const nanoseconds = BigInt(Math.max(1, Math.round(seconds * 1e9)));
  const fraction = (value, size) => {
    const digits = String(size).length - 1;
    const rest = digits === 0 ? '' : String(value % size).padStart(digits, '0').replace(/0+$/, '');
    return rest === '' ? String(value / size) : `${value / size}.${rest}`;
  };
  for (const [unit, size] of [['ns', 1n], ['µs', 1000n], ['ms', 1000000n]]) {
    if (nanoseconds < size * 1000n) return fraction(nanoseconds, size) + unit;
  }
  const minutes = nanoseconds / 60000000000n;
  const head = (minutes >= 60n ? `${minutes / 60n}h` : '') + (minutes > 0n ? `${minutes % 60n}m` : '');
  return `${head}${fraction(nanoseconds % 60000000000n, 1000000000n)}s`;
}

/** JSON text. Unlike JSON.stringify it writes BigInts, and refuses what JSON does not have. */
export function toJson(value, where = 'args') {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'bigint') return String(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new RiglineError('bad-arguments', `${where}: ${value} is not a JSON number`);
    return String(value);
  }
  if (Array.isArray(value)) return `[${value.map((element, at) => toJson(element, `${where}[${at}]`)).join(',')}]`;
  if (typeof value?.toJSON === 'function') return toJson(value.toJSON(), where);
  const type = Object.prototype.toString.call(value).slice(8, -1);
  // What keeps its contents elsewhere than in its members, such as a Map or a Promise, would be sent as {}.
  if (type === 'Object') {
    const there = Object.entries(value).filter(([, member]) => member !== undefined);
    return `{${there.map(([key, member]) => `${JSON.stringify(key)}:${toJson(member, `${where}.${key}`)}`).join(',')}}`;
  }
  throw new RiglineError('bad-arguments', `${where}: ${typeof value === 'object' ? type : typeof value} is not a type that JSON has`);
}

/**
 * The operation's own name: the one that is written, or else the one that differs from it only in `-` and `_`, since `set-target` is
 * `set_target` in MCP. The extension says what is wrong with a name that it does not have.
 */
function spelled(name, operations) {
  if (typeof name !== 'string' || !operations || Object.hasOwn(operations, name)) return name;
  const dashed = (text) => text.replaceAll('_', '-');
  const alike = Object.keys(operations).filter((known) => dashed(known) === dashed(name));
  if (alike.length < 2) return alike[0] ?? name;
  throw new RiglineError('unknown-operation', `${JSON.stringify(name)} may be ${alike.join(' or ')}; write one of them`, { operation: name });
}

function refusal(answer, operation = null) {
  return new RiglineError(KINDS.get(answer.code) ?? 'refused', answer.error, { operation, code: answer.code, data: answer.data });
}

function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value of an id, in whatever spelling. */
function idOf(value) {
  if (typeof value === 'string' && /^[0-9]{1,10}$/.test(value)) return Number(value);
  return Number.isInteger(value) ? value : null;
}

/** The member of that name, or else one whose name differs in case only. */
function member(object, name) {
  if (!isObject(object)) return null;
  if (Object.hasOwn(object, name)) return object[name];
  const alike = Object.keys(object).findLast((key) => key.toLowerCase() === name);
  return alike === undefined ? null : object[alike];
}

/** A value as a person reads it. */
function plain(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'string') return value;
  try {
    return JSON.stringify(value);
  } catch {
    // JSON.parse has no limit of depth, and JSON.stringify has one.
    return 'a value that is nested too deeply';
  }
}

/** Shared with the client in WebAssembly: see `../../web`. */
export function ofError(error) {
  const raw = isObject(error) ? error.code : error;
  const code = typeof raw === 'string' && /^-?[0-9]{1,10}$/.test(raw) ? Number(raw) : raw;
  const message = isObject(error) ? plain(member(error, 'message')) : '';
  const data = isObject(error) ? (error.data ?? null) : null;
  return { kind: 'refused', error: message || plain(data) || plain(error), code: Number.isInteger(code) ? code : null, data };
}

/** Shared with the client in WebAssembly: see `../../web`. */
export function ofResult(result, text) {
  if (!isObject(result)) return { kind: 'invalid', error: 'the result is not an object' };
  const [message, error] = [plain(member(result, 'message')), plain(member(result, 'error'))];
  const success = member(result, 'success');
  if (typeof success !== 'boolean') {
    return { kind: 'invalid', error: success === null ? 'the result has no success' : "the result's success is not a boolean" };
  }
  const outputs = isObject(member(result, 'outputs')) ? outputsOf(text) : new Map();
  if (success) return { kind: 'success', message, outputs };
  return { kind: 'failed', message, outputs, error: error || message || 'the operation failed without a reason' };
}

/** The outputs by name, in their order: strings as they are, and other values as their JSON text, exactly as it came. */
function outputsOf(text) {
  for (const name of ['result', 'outputs']) {
    const named = members(text);
    const alike = ([key]) => key.toLowerCase() === name;
    text = (named.findLast(([key]) => key === name) ?? named.findLast(alike))[1];
  }
  // A Map, as an object would put names that are numbers first.
  const shown = (raw) => (raw.startsWith('"') ? JSON.parse(raw) : raw === 'null' ? '' : raw);
  return new Map(members(text).map(([key, raw]) => [key, shown(raw)]));
}

const LEVELS = new Map(
  Object.entries({
    debug: 'debug',
    trace: 'debug',
    verbose: 'debug',
    warn: 'warn',
    warning: 'warn',
    error: 'error',
    err: 'error',
    fatal: 'error',
    critical: 'error',
    panic: 'error',
  }),
);

/** Shared with the client in WebAssembly: see `../../web`. */
export function ofLog(params) {
  if (!isObject(params)) return { level: 'info', message: plain(params), data: null };
  const level = LEVELS.get(String(member(params, 'level')).toLowerCase()) ?? 'info';
  return { level, message: plain(member(params, 'message')), data: member(params, 'data') ?? null };
}

/** Does something after so many milliseconds; gives what stops that. */
function after(milliseconds, act) {
  let timer;
  const arm = (left) => {
    timer = setTimeout(() => (left > LONGEST_TIMER ? arm(left - LONGEST_TIMER) : act()), Math.min(left, LONGEST_TIMER));
  };
  arm(milliseconds);
  return () => clearTimeout(timer);
}

/** Where the string that begins at the quote at `start` ends; -1 if it does not. A regular expression runs out of stack in a long string. */
function endOfString(text, start) {
  for (let quote = text.indexOf('"', start + 1); quote >= 0; quote = text.indexOf('"', quote + 1)) {
    let before = quote - 1;
    while (text[before] === '\\') before -= 1;
    if ((quote - before) % 2 === 1) return quote + 1;
  }
  return -1;
}

/** Strings and structural characters from `from` on: each one's text, and where it begins and ends. A quote alone is a string without an end. */
function* tokens(text, from = 0) {
  const marks = /["{}[\],:]/g;
  marks.lastIndex = from;
  for (let found = marks.exec(text); found; found = marks.exec(text)) {
    const { index } = found;
    const end = found[0] === '"' ? endOfString(text, index) : index + 1;
    if (end < 0) return yield ['"', index, text.length];
    yield [text.slice(index, end), index, end];
    marks.lastIndex = end;
  }
}

/** Where the object that begins at `start` ends; -1 if it does not. */
function endOfObject(text, start) {
  let depth = 0;
  for (const [mark, , end] of tokens(text, start)) {
    if (mark === '"') return -1;
    if (mark === '{' || mark === '[') depth += 1;
    else if ((mark === '}' || mark === ']') && --depth === 0) return end;
  }
  return -1;
}

/** The members of an object's text: names and values as JSON text. The text has been read before, so it is an object. */
function members(text) {
  const found = [];
  let [depth, key, start] = [0, null, 0];
  for (const [mark, index] of tokens(text)) {
    if (mark === '{' || mark === '[') depth += 1;
    else if (depth === 1 && mark[0] === '"' && key === null) key = JSON.parse(mark);
    else if (depth === 1 && mark === ':') start = index + 1;
    else if (depth === 1 && (mark === ',' || mark === '}')) {
      if (key !== null) found.push([key, text.slice(start, index).trim()]);
      key = null;
    }
    if (mark === '}' || mark === ']') depth -= 1;
  }
  return found;
}

/** The names of a damaged object's members, and where their values begin. */
function* topLevel(text) {
  if (!text.startsWith('{')) return;
  let depth = 0;
  for (const [mark, , end] of tokens(text)) {
    if (mark === '"') return;
    if (mark === '{' || mark === '[') depth += 1;
    else if (mark === '}' || mark === ']') {
      if (--depth <= 0) return;
    } else if (mark[0] === '"' && depth === 1) {
      const colon = /^\s*:/.exec(text.slice(end, end + 64));
      if (colon) yield [mark.slice(1, -1), end + colon[0].length];
    }
  }
}
