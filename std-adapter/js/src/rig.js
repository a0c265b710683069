// The client, without what makes request lines and reads replies: index.js and rigline-web have that.

const VERSION = '0.0.1';
/** The longest line that is taken from a peer, in bytes. */
export const LINE_LIMIT = 16 * 1024 * 1024;
/** How long the extension's own timeout error may take beyond the call's timeout, in milliseconds. No other answer counts then. */
const GRACE = 2000;
/** How many bytes of answers to the peer's own requests may wait for the peer to read them. */
const ANSWERS = 1 << 20;
/** How many logs of a call are kept, and how many characters of them. */
const LOGS = 4096;
const LOG_TEXT = 4 << 20;
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
    this.ownCode = isObject(this.data) && typeof this.data[CODE_NAME] === 'string' ? this.data[CODE_NAME] : null;
  }
}

/** Throws a TypeError unless a value is of one of these types, as `typeof` names them, or of these classes. */
export function must(name, value, ...types) {
  const type = typeof value === 'object' ? Object.prototype.toString.call(value).slice(8, -1) : typeof value;
  if (!types.includes(type)) throw new TypeError(`${name} must be ${types.join(' or ')}, not ${type}`);
}

const KINDS = new Map([
  [-32601, 'unknown-operation'],
  [-32602, 'bad-arguments'],
  [-32603, 'internal'],
  [-32000, 'unreachable'],
  [-32001, 'timeout'],
  [-32002, 'requirement'],
]);

/** What rigline's own servers say of a failure in its data. */
const KIND_NAME = 'rigline/kind';
const CODE_NAME = 'rigline/code';
const OWN_KINDS = new Map([
  ['forbidden', 'forbidden'],
  ['too_large', 'too-large'],
]);

/** What makes the host's half of a session where no other is given: index.js and rigline-web have one each. */
export const defaults = { session: null };

/** A session with an extension over a transport: anything with `send(text)`, `close()` and settable `onData` and `onEnd`. */
export class Rig {
  #transport;
  #session;
  #waiting = new Map();
  #parts = [];
  #size = 0;
  #lost = null;
  #turn = Promise.resolve();
  #unanswered = 0;
  #options;

  /** The manifest, as it came. */
  manifest = null;

  constructor(transport, options = {}) {
    this.#transport = transport;
    this.#options = { timeout: 30, startTimeout: 10, workdir: '', onLog: () => {}, onNoise: () => {}, ...options };
    this.#session = options.session ?? defaults.session(options.base ?? 0);
    transport.onData = (data) => this.#data(data);
    transport.onEnd = (why) => this.#end(new RiglineError('lost', why || 'the connection is gone'));
  }

  /** Opens the session; gives the rig. */
  static async open(transport, options = {}) {
    for (const name of ['send', 'close']) must(`transport.${name}`, transport?.[name], 'function');
    must('options', options, 'Object');
    must('timeout', options.timeout ?? 0, 'number');
    must('onLog', options.onLog ?? must, 'function');
    must('onNoise', options.onNoise ?? must, 'function');
    const rig = new Rig(transport, options);
    try {
      duration(rig.#options.startTimeout);
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
    must('operation', operation, 'string');
    must('args', args, 'Object');
    must('options', options, 'Object');
    const { timeout = this.#options.timeout, phase = '', env, workdir = this.#options.workdir, signal } = options;
    const context = { workdir, phase, ...(env && { env }), timeout: duration(timeout) };
    const written = toJson(args);
    const done = this.#turn.then(async () => {
      if (signal?.aborted) throw new RiglineError('cancelled', 'the call was cancelled', { operation });
      operation = spelled(operation, this.manifest?.operations);
      const params = `{"operation":${JSON.stringify(operation)},"args":${written},"context":${JSON.stringify(context)}}`;
      const logs = new Logs();
      const began = performance.now();
      const answer = await this.#ask('execute', params, timeout * 1000 + GRACE, { operation, logs, signal });
      const took = performance.now() - began;
      if (took > timeout * 1000 && !(answer.kind === 'refused' && refusal(answer).kind === 'timeout')) {
        const said = answer.message ?? answer.error ?? '';
        const text = `the answer came after ${(took / 1000).toFixed(3)} s, beyond the time limit of ${timeout} s${said && `; it said: ${said}`}`;
        throw new RiglineError('timeout', text, { operation });
      }
      const result = { message: answer.message ?? '', outputs: answer.outputs ?? new Map(), logs: logs.all() };
      if (answer.kind === 'success') return result;
      if (answer.kind === 'failed') throw new RiglineError('failed', answer.error, { operation, result, data: answer.data ?? null });
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
      const stopTimer = after(patience, () => cut('timeout', `no answer within ${patience / 1000} s${this.#deafness()}`));
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
      else if (send) this.#answer(send);
      else if (log) {
        for (const waiting of this.#waiting.values()) waiting.logs?.add(log);
        this.#options.onLog(log);
      } else this.#options.onNoise(noise);
    }
  }

  /** Answers a request of the peer's, unless too many answers wait for it already. */
  #answer(line) {
    if ((this.#transport.waiting?.() ?? 0) > ANSWERS) this.#unanswered++;
    else this.#transport.send(line);
  }

  #deafness() {
    return this.#unanswered ? `; it sends requests without reading the answers: ${this.#unanswered} were not answered` : '';
  }

  #end(error) {
    if (this.#lost) return;
    // The last line may lack its newline.
    if (error.kind === 'lost' && this.#size > 0) this.#line();
    this.#lost = error;
    for (const { reject } of [...this.#waiting.values()]) reject(error);
  }
}

/** The first logs of a call, and how many were dropped, since there were too many. */
class Logs {
  #kept = [];
  #size = 0;
  #dropped = 0;

  add(log) {
    const size = log.message.length + (log.data === null || log.data === undefined ? 0 : plain(log.data).length);
    if (this.#kept.length >= LOGS || this.#size + size > LOG_TEXT) {
      this.#dropped++;
      return;
    }
    this.#kept.push(log);
    this.#size += size;
  }

  /** All that were kept. If some were dropped, the last one says how many. */
  all() {
    if (!this.#dropped) return this.#kept;
    const message = `${this.#dropped} further log lines were dropped, since there were too many`;
    return [...this.#kept, { level: 'warn', message, data: null }];
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
  const said = isObject(answer.data) ? OWN_KINDS.get(answer.data[KIND_NAME]) : undefined;
  return new RiglineError(said ?? KINDS.get(answer.code) ?? 'refused', answer.error, { operation, code: answer.code, data: answer.data });
}

export function isObject(value) {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value of an id, in whatever spelling. */
export function idOf(value) {
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
  const data = member(result, 'data') ?? null;
  return { kind: 'failed', message, outputs, data, error: error || message || 'the operation failed without a reason' };
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
export function endOfObject(text, start) {
  let depth = 0;
  for (const [mark, , end] of tokens(text, start)) {
    if (mark === '"') return -1;
    if (mark === '{' || mark === '[') depth += 1;
    else if ((mark === '}' || mark === ']') && --depth === 0) return end;
  }
  return -1;
}

/** The members of an object's text: names and values as JSON text. The text has been read before, so it is an object. */
export function members(text) {
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
export function* topLevel(text) {
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
