import { batch, computed, signal } from '@preact/signals';
import { info, socketAddress, watchServer } from './address';
import { type ClientState, type Clients, Gone, Link, Silent } from './link';
import { keep, kept, later } from './here';
import { Ring } from './ring';
import { type Answer, type Log, duration, webSerial, webSocket } from './rigline';
import { isObject } from './exact';
import { type Schema, asSchema } from './schema';
import { cut, messageOf } from './text';

export interface Operation {
  name: string;
  description: string;
  params: Schema;
}

export interface Manifest {
  name: string;
  version: string;
  description: string;
  operations: Operation[];
  requestLimit: number | null;
  /** Whether the extension says that it has a safe state. */
  hasSafeState: boolean;
}

/** What a connection goes to. */
export type Place =
  | { kind: 'socket'; target: string | null; label: string }
  | { kind: 'serial'; port: SerialPort; usb: SerialPortInfo; label: string };

export type State =
  | { at: 'idle' }
  | { at: 'connecting'; place: Place }
  | { at: 'ready'; place: Place }
  | { at: 'ended'; place: Place; why: string; unplugged: boolean; isServerGone: boolean };

export type Status = 'waiting' | 'running' | 'done' | 'failed' | 'refused' | 'cancelled' | 'lost';

export interface Call {
  number: number;
  operation: string;
  /** JSON text. */
  args: string;
  timeout: number;
  status: Status;
  begun: number;
  /** Without the time that it waited for another client. */
  milliseconds: number | null;
  /** How long it waited for another client, in milliseconds. */
  waited: number;
  /** Whom it waits for. */
  holder: string | null;
  message: string;
  outputs: [string, string][];
  /** How many outputs are not kept. */
  droppedOutputs: number;
  /** The logs of a call that is over. */
  logs: LogEntry[];
}

export interface LogEntry extends Log {
  time: number;
  /** The call that it belongs to; 0: none. */
  call: number;
}

export interface Line {
  time: number;
  direction: 'sent' | 'got';
  text: string;
  fault: string | null;
}

/** How many calls the history keeps. */
const CALLS = 100;
/** An output longer than this is cut in the history, in characters. */
const OUTPUT_LIMIT = 64 * 1024;
/** How many outputs of a call are kept. */
const OUTPUTS = 500;
/** How much text the history keeps, in characters. */
const HISTORY_SIZE = 16 << 20;
const LOG_TEXT_LIMIT = 4000;
/** How many logs are kept with a call that is over. */
const CALL_LOGS = 500;
/** How long a port stays closed before it is opened again, in milliseconds: the board must see that DTR dropped. */
const DTR_SEEN = 300;

export const state = signal<State>({ at: 'idle' });
export const manifest = signal<Manifest | null>(null);
/** The newest call is first. */
export const calls = signal<Call[]>([]);
/** Says what has just happened, for screen readers too. */
export const notice = signal('');
/** USB ids of an unplugged board that is back. */
export const isBack = signal(false);
/** Who else is connected, where the server says it. */
export const clients = signal<Clients | null>(null);
export const ready = computed(() => state.value.at === 'ready');

export const logs = new Ring<LogEntry>(5000, 4 << 20, (entry) => entry.message.length);
export const lines = new Ring<Line>(5000, 16 << 20, (line) => line.text.length);
/** Rises when logs or lines have changed, at most once a frame, and not at all while the page is hidden. */
export const traffic = signal(0);

/** What other clients see of this one. */
export const name = signal(nameKept());

function nameKept(): string {
  const own = kept('name', true);
  if (typeof own === 'string' && own.trim() !== '') return own.slice(0, 60);
  const agent = navigator.userAgent;
  const browser = [['Edg', 'Edge'], ['OPR', 'Opera'], ['Firefox', 'Firefox'], ['Chrome', 'Chrome'], ['Safari', 'Safari']].find(([mark]) => agent.includes(mark as string))?.[1] ?? 'a browser';
  const system = /Android|iPhone|iPad|Windows|Mac OS X|CrOS|Linux/.exec(agent)?.[0];
  return system ? `${browser} on ${system}` : browser;
}

function ownName(): string {
  return name.value.trim() || 'a page';
}

export function rename(to: string): void {
  name.value = to.slice(0, 60);
  keep('name', name.value, true);
}

/** Whoever has the turn, if it is another client. */
export function holder(): ClientState | null {
  const known = clients.value;
  return known?.clients.find((one) => one.state === 'running' && one.id !== known.you) ?? null;
}

let link: Link | null = null;
/** Settles when the last connection has let go of its port. */
let closing: Promise<unknown> = Promise.resolve();
let turn: Promise<unknown> = Promise.resolve();
let running: { call: Call; cancel: () => void } | null = null;
let numbers = 0;
let attempt = 0;
let frame = 0;

function changed(): void {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    traffic.value += 1;
  });
}

export function clearLogs(): void {
  logs.clear();
  lines.clear();
  changed();
}

/** What the command line calls this target. */
export function targetName(place: Place | null): string {
  if (place?.kind === 'serial') return 'serial:auto';
  return place?.target ?? info.value?.target ?? 'sim';
}

export function placeOf(current: State): Place | null {
  return current.at === 'idle' ? null : current.place;
}

export function usbName(usb: SerialPortInfo): string {
  const hex = (id: number | undefined) => (id ?? 0).toString(16).padStart(4, '0');
  return usb.usbVendorId === undefined ? 'a serial port' : `USB ${hex(usb.usbVendorId)}:${hex(usb.usbProductId)}`;
}

export function serialPlace(port: SerialPort): Place {
  const usb = port.getInfo();
  return { kind: 'serial', port, usb, label: usbName(usb) };
}

export async function connect(place: Place): Promise<void> {
  const mine = ++attempt;
  if (link) shut(link);
  batch(() => {
    state.value = { at: 'connecting', place };
    isBack.value = false;
    notice.value = `Connecting to ${place.label}.`;
  });
  clients.value = null;
  keep('place', place.kind === 'socket' ? { kind: 'socket', target: place.target, label: place.label } : { kind: 'serial', usb: place.usb });
  let opened: Link | null = null;
  try {
    await closing;
    if (mine !== attempt) return;
    const transport =
      place.kind === 'socket'
        ? await webSocket(socketAddress('ws', { lines: 'many', clients: '1', name: ownName(), ...(place.target === null ? {} : { target: place.target }) }))
        : await webSerial(place.port);
    const self = (opened = new Link(transport, place.kind === 'serial', {
      onLog: (log) => {
        logs.push({ ...log, message: cut(log.message, LOG_TEXT_LIMIT), data: null, time: Date.now(), call: running?.call.number ?? 0 });
        changed();
      },
      onLine: (direction, text, fault) => {
        lines.push({ time: Date.now(), direction, text, fault });
        changed();
      },
      onEnd: (why, code) => {
        if (link === self && mine === attempt) ended(place, why, code);
      },
      onClients: (told) => {
        if (link === self || link === null) clients.value = told;
      },
    }));
    if (mine !== attempt) return shut(self);
    link = opened;
    const raw = await opened.open();
    if (mine !== attempt) return;
    batch(() => {
      manifest.value = manifestOf(raw);
      state.value = { at: 'ready', place };
      setTimeout(() => mine === attempt && (losses = 0), 10_000);
      notice.value = `Connected to ${manifest.value.name} ${manifest.value.version}.`;
    });
  } catch (error) {
    if (mine !== attempt) return;
    if (opened) shut(opened);
    ended(place, messageOf(error), codeOf(error));
  }
}

/** Closes a connection; the next one waits until that is done. */
function shut(last: Link, why?: string): void {
  if (link === last) link = null;
  const closed = last.close(why).catch(() => {});
  closing = Promise.all([closing, last.isSerial ? closed.then(() => new Promise((seen) => setTimeout(seen, DTR_SEEN))) : closed]);
}

/** Codes of an end that says nothing of the rig: the server stopped, the line was cut, this page was asleep for long. */
const COMES_BACK = [1001, 1006, 4408];

function codeOf(error: unknown): number | null {
  const code = (error as { code?: unknown }).code;
  return typeof code === 'number' ? code : null;
}

function ended(place: Place, why: string, code: number | null = null): void {
  link = null;
  clients.value = null;
  const unplugged = place.kind === 'serial' && !isConnected(place.port);
  state.value = { at: 'ended', place, why, unplugged, isServerGone: false };
  notice.value = unplugged ? 'The board was unplugged.' : `The connection ended: ${why}.`;
  if (place.kind === 'socket') void comeBack(place, code !== null && COMES_BACK.includes(code));
}

/** Finds out whether the server is there. If it is gone, the connection is made again when it is back. */
async function comeBack(place: Place, isOurs: boolean): Promise<void> {
  const mine = attempt;
  const isOver = () => mine !== attempt || state.value.at !== 'ended';
  const found = await watchServer(isOver, () => {
    const current = state.value;
    if (isOver() || current.at !== 'ended' || current.isServerGone) return;
    state.value = { ...current, isServerGone: true };
    notice.value = `The server at ${location.host} does not answer. This page connects again when it does.`;
  });
  if (isOver() || found === 'refused') return;
  if (found === 'back') losses = 0;
  else if (!isOurs || ++losses > MOST_LOSSES) return;
  else await new Promise((resolve) => setTimeout(resolve, 250 * 2 ** losses));
  if (!isOver()) await connect(place);
}

/** How often in a row a connection is made again that a server cut which is there. */
const MOST_LOSSES = 5;
let losses = 0;

function isConnected(port: SerialPort & { connected?: boolean }): boolean {
  return port.connected !== false;
}

/** Ends the session. `keep` asks the rig to leave outputs as they are. */
export async function disconnect(keepOutputs = false): Promise<void> {
  attempt += 1;
  const last = link;
  link = null;
  keep('place', null);
  let isAcknowledged = false;
  if (keepOutputs && last) {
    const answer = await last.ask('shutdown', '{}', 5000).catch(() => null);
    isAcknowledged = answer?.kind === 'success';
  }
  if (last) shut(last);
  const open = `Disconnected. ${AT_LOSS}`;
  batch(() => {
    state.value = { at: 'idle' };
    clients.value = null;
    notice.value = last === null ? 'There is no connection.' : isAcknowledged ? 'Disconnected. The rig has acknowledged the end of the session, which leaves its outputs as they are.' : keepOutputs ? `The rig has not acknowledged the end of the session. ${open}` : open;
  });
}

/** What becomes of outputs is the rig's affair, and not known here. */
const AT_LOSS = 'A rig with a safe state switches its outputs off when its last session is lost; whether it has done so is not known here.';

/** Ends the session as a loss does, and begins another one; returns whether there is one. */
export async function renew(): Promise<boolean> {
  const place = placeOf(state.value);
  if (place === null) return false;
  await connect(place);
  return ready.value;
}

/** Waits until there is a session, for so many milliseconds. */
export function whenReady(most: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => end(false), most);
    const stop = ready.subscribe((is) => is && queueMicrotask(() => end(true)));
    const end = (is: boolean) => {
      clearTimeout(timer);
      stop();
      resolve(is);
    };
  });
}

/** Connects to the same place again: a board by its USB ids, as the port may be another object when it returns. */
export async function reconnect(): Promise<void> {
  const place = placeOf(state.value);
  if (place === null) return;
  if (place.kind === 'socket') return connect(place);
  const port = await returned(place);
  if (port) return connect(serialPlace(port));
  notice.value = `${place.label} is not plugged in. Plug it in, then reconnect.`;
}

async function returned(place: { usb: SerialPortInfo }): Promise<SerialPort | undefined> {
  const all = await navigator.serial.getPorts();
  return all.find((port) => isConnected(port) && isSame(port.getInfo(), place.usb));
}

function isSame(a: SerialPortInfo, b: SerialPortInfo): boolean {
  return a.usbVendorId === b.usbVendorId && a.usbProductId === b.usbProductId;
}

if ('serial' in navigator) {
  navigator.serial.addEventListener('connect', (event) => {
    const current = state.value;
    const port = event.target as SerialPort;
    if (current.at !== 'ended' || current.place.kind !== 'serial' || !isSame(port.getInfo(), current.place.usb)) return;
    batch(() => {
      isBack.value = true;
      notice.value = `${current.place.label} is back.`;
    });
  });
  navigator.serial.addEventListener('disconnect', (event) => {
    isBack.value = false;
    const current = state.value;
    if (current.at === 'idle' || current.place.kind !== 'serial' || current.place.port !== event.target) return;
    if (current.at === 'ended') {
      state.value = { ...current, unplugged: true };
      notice.value = 'The board was unplugged.';
      return;
    }
    const last = link;
    attempt += 1;
    link = null;
    if (last) shut(last, 'the board was unplugged');
    state.value = { at: 'ended', place: current.place, why: 'the board was unplugged', unplugged: true, isServerGone: false };
    notice.value = 'The board was unplugged.';
  });
}

// The history lives as long as the tab.

for (const call of keptCalls()) {
  calls.value = [...calls.value, call];
  numbers = Math.max(numbers, call.number);
}
calls.subscribe((all) => later('calls', () => keepCalls(all)));

function keepCalls(all: Call[]): void {
  // What does not fit is left out, the oldest first.
  for (let most = all.length; most >= 0 && !keep('calls', all.slice(0, most)); most = most > 0 ? Math.floor(most / 2) : -1);
}

function keptCalls(): Call[] {
  const found = kept('calls');
  if (!Array.isArray(found)) return [];
  return found.filter(isCall).map((call) => {
    const isOpen = call.status === 'running' || call.status === 'waiting';
    return isOpen ? { ...call, status: 'lost', holder: null, message: 'The page was loaded anew while the call was out, so its answer is not known.' } : call;
  });
}

function isCall(value: unknown): value is Call {
  if (!isObject(value)) return false;
  const { number, operation, args, timeout, status, message, outputs, logs: own } = value as Partial<Call>;
  return typeof number === 'number' && typeof operation === 'string' && typeof args === 'string' && typeof timeout === 'number' && typeof status === 'string' && typeof message === 'string' && Array.isArray(outputs) && Array.isArray(own);
}

/** The place that this tab was connected to before it was loaded anew. */
export async function keptPlace(): Promise<Place | null> {
  const found = kept('place');
  if (!isObject(found)) return null;
  if (found.kind === 'socket' && typeof found.label === 'string' && info.value) {
    return { kind: 'socket', target: typeof found.target === 'string' ? found.target : null, label: found.label };
  }
  if (found.kind !== 'serial' || !('serial' in navigator) || !isObject(found.usb)) return null;
  const port = await returned({ usb: found.usb as SerialPortInfo });
  return port ? serialPlace(port) : null;
}

/** An operation's own answer, or why there is none. */
export interface Outcome {
  status: Status;
  message: string;
  outputs: Map<string, string>;
}

/** Calls an operation, as a call that the history shows. */
export function run(operation: string, args: string, timeout: number): Call {
  const call: Call = { number: ++numbers, operation, args, timeout, status: 'waiting', begun: Date.now(), milliseconds: null, waited: 0, holder: null, message: '', outputs: [], droppedOutputs: 0, logs: [] };
  calls.value = bounded([call, ...calls.value]);
  void execute(operation, args, timeout, call);
  return call;
}

/** The newest calls, as many as the history keeps. */
function bounded(all: Call[]): Call[] {
  let size = 0;
  const sizeOf = (call: Call) => call.outputs.reduce((sum, [name, value]) => sum + name.length + value.length, call.args.length + call.message.length);
  return all.filter((call, at) => at === 0 || (at < CALLS && (size += sizeOf(call)) < HISTORY_SIZE));
}

/** Ends the call that runs: its session ends with it, and another one begins. */
export function cancel(number: number): void {
  if (running?.call.number === number) return running.cancel();
  const waiting = calls.value.find((call) => call.number === number && call.status === 'waiting');
  if (waiting) change(number, { status: 'cancelled', message: 'The call was cancelled before it began.' });
}

function change(number: number, what: Partial<Call>): void {
  calls.value = calls.value.map((call) => (call.number === number ? { ...call, ...what } : call));
}

/** Asks for the outputs of an operation that takes nothing and changes nothing. Whatever comes of it, the session goes on. */
export async function quietly(operation: string): Promise<Map<string, string> | null> {
  try {
    const answer = await link?.ask('execute', `{"operation":${JSON.stringify(operation)},"args":{},"context":{"workdir":"","phase":"","timeout":"5s"}}`, 60_000);
    return answer?.kind === 'success' ? (answer.outputs ?? null) : null;
  } catch {
    return null;
  }
}

/** Calls an operation. Calls take turns. `call` is its place in the history, if it has one. */
export function execute(operation: string, args: string, timeout: number, call: Call | null = null): Promise<Outcome> {
  const done = turn.then(() => perform(operation, args, timeout, call));
  turn = done.catch(() => {});
  return done;
}

async function perform(operation: string, args: string, timeout: number, call: Call | null): Promise<Outcome> {
  const tell = (what: Partial<Call>) => {
    if (call !== null) change(call.number, what);
  };
  let waited = 0;
  const finish = (status: Status, message: string, outputs = new Map<string, string>(), time: number | null = null): Outcome => {
    const kept = [...outputs].slice(0, OUTPUTS).map(([name, value]): [string, string] => [cut(name, 1000), cut(value, OUTPUT_LIMIT)]);
    const entries = call === null ? [] : [...logs].filter((entry) => entry.call === call.number).slice(-CALL_LOGS);
    tell({ status, message: cut(message, OUTPUT_LIMIT), outputs: kept, droppedOutputs: outputs.size - kept.length, milliseconds: time, holder: null, waited, logs: entries });
    if (call !== null) notice.value = `${operation}: ${words(status)}. ${cut(message, 300)}`;
    return { status, message, outputs };
  };
  if (call !== null && calls.value.find((one) => one.number === call.number)?.status === 'cancelled') {
    return { status: 'cancelled', message: '', outputs: new Map() };
  }
  const mine = link;
  const current = state.value;
  if (mine === null || current.at !== 'ready') return finish('lost', 'There is no connection.');
  const params = `{"operation":${JSON.stringify(operation)},"args":${args},"context":{"workdir":"","phase":"","timeout":${JSON.stringify(duration(timeout))}}}`;
  const begun = performance.now();
  let cancelled = false;
  tell({ status: 'running', begun: Date.now() });
  if (call !== null) {
    running = {
      call,
      cancel: () => {
        cancelled = true;
        // The end that follows is wanted: it is not reported as a loss.
        attempt += 1;
        shut(mine, 'the call was cancelled');
      },
    };
  }
  try {
    const answer = await mine.ask('execute', params, timeout * 1000 + 2000, (turn) => {
      waited = turn.waited;
      tell(turn.waitsFor === null ? { status: 'running', holder: null, waited } : { status: 'waiting', holder: turn.waitsFor.name, waited });
    });
    return finish(...outcomeOf(answer), Math.max(0, performance.now() - begun - waited));
  } catch (error) {
    const time = Math.max(0, performance.now() - begun - waited);
    const why = cancelled ? 'The call was cancelled' : error instanceof Silent ? `There was ${error.message}` : null;
    if (why !== null) {
      void renewed(call, `${why}, and its session with the rig was ended.`, current.place);
      return finish(cancelled ? 'cancelled' : 'lost', `${why}, and its session with the rig was ended. What the rig has done with its outputs is not known.`, undefined, time);
    }
    return finish('lost', error instanceof Gone ? `There is no answer: ${error.message}.` : messageOf(error), undefined, time);
  } finally {
    running = null;
  }
}

/** Opens a new session after a call that was given up, and says with the call when there is one. */
async function renewed(call: Call | null, what: string, place: Place): Promise<void> {
  await connect(place);
  const isOpen = state.value.at === 'ready';
  const after = isOpen ? 'A new session has begun. Outputs may have changed: read them.' : 'There is no new session, and what the rig has done with its outputs is not known.';
  if (call !== null) change(call.number, { message: `${what} ${after}` });
}

function outcomeOf(answer: Answer): [Status, string, Map<string, string>] {
  const outputs = answer.outputs ?? new Map<string, string>();
  if (answer.kind === 'success') return ['done', answer.message ?? '', outputs];
  if (answer.kind === 'failed') return ['failed', answer.error ?? answer.message ?? '', outputs];
  return ['refused', answer.error ?? 'the answer cannot be used', outputs];
}

export function words(status: Status): string {
  return { waiting: 'waiting for its turn', running: 'running', done: 'succeeded', failed: 'failed', refused: 'refused', cancelled: 'cancelled', lost: 'no answer' }[status];
}

function manifestOf(raw: Record<string, unknown>): Manifest {
  const text = (value: unknown, most: number) => (typeof value === 'string' ? cut(value, most) : '');
  const listed = isObject(raw.operations) ? Object.entries(raw.operations) : [];
  const limit = isObject(raw.limits) ? raw.limits.request : null;
  return {
    name: text(raw.name, 200) || 'an extension without a name',
    version: text(raw.version, 100),
    description: text(raw.description, 5000),
    operations: listed.map(([name, own]) => ({ name, description: isObject(own) ? text(own.description, 5000) : '', params: asSchema(isObject(own) ? own.params : null) })),
    hasSafeState: raw.safeState === true,
    requestLimit: typeof limit === 'number' ? limit : null,
  };
}
