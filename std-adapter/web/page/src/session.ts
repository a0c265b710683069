import { batch, computed, signal } from '@preact/signals';
import { info, socketAddress } from './address';
import { Gone, Link, Silent } from './link';
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
}

/** What a connection goes to. */
export type Place =
  | { kind: 'socket'; target: string | null; label: string }
  | { kind: 'serial'; port: SerialPort; usb: SerialPortInfo; label: string };

export type State =
  | { at: 'idle' }
  | { at: 'connecting'; place: Place }
  | { at: 'ready'; place: Place }
  | { at: 'ended'; place: Place; why: string; unplugged: boolean };

export type Status = 'waiting' | 'running' | 'done' | 'failed' | 'refused' | 'cancelled' | 'lost';

export interface Call {
  number: number;
  operation: string;
  /** JSON text. */
  args: string;
  timeout: number;
  status: Status;
  begun: number;
  milliseconds: number | null;
  message: string;
  outputs: [string, string][];
  /** How many outputs are not kept. */
  droppedOutputs: number;
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
export const ready = computed(() => state.value.at === 'ready');

export const logs = new Ring<LogEntry>(5000, 4 << 20, (entry) => entry.message.length);
export const lines = new Ring<Line>(5000, 16 << 20, (line) => line.text.length);
/** Rises when logs or lines have changed, at most once a frame, and not at all while the page is hidden. */
export const traffic = signal(0);

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
  let opened: Link | null = null;
  try {
    await closing;
    if (mine !== attempt) return;
    const transport =
      place.kind === 'socket'
        ? await webSocket(socketAddress('ws', { lines: 'many', ...(place.target === null ? {} : { target: place.target }) }))
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
      onEnd: (why) => {
        if (link === self && mine === attempt) ended(place, why);
      },
    }));
    if (mine !== attempt) return shut(self);
    link = opened;
    const raw = await opened.open();
    if (mine !== attempt) return;
    batch(() => {
      manifest.value = manifestOf(raw);
      state.value = { at: 'ready', place };
      notice.value = `Connected to ${manifest.value.name} ${manifest.value.version}.`;
    });
  } catch (error) {
    if (mine !== attempt) return;
    if (opened) shut(opened);
    ended(place, messageOf(error));
  }
}

/** Closes a connection; the next one waits until that is done. */
function shut(last: Link, why?: string): void {
  if (link === last) link = null;
  const closed = last.close(why).catch(() => {});
  closing = Promise.all([closing, last.isSerial ? closed.then(() => new Promise((seen) => setTimeout(seen, DTR_SEEN))) : closed]);
}

function ended(place: Place, why: string): void {
  link = null;
  const unplugged = place.kind === 'serial' && !isConnected(place.port);
  state.value = { at: 'ended', place, why, unplugged };
  notice.value = unplugged ? 'The board was unplugged.' : `The connection ended: ${why}.`;
}

function isConnected(port: SerialPort & { connected?: boolean }): boolean {
  return port.connected !== false;
}

/** Ends the session. `keep` leaves outputs as they are; else the rig switches them off. */
export async function disconnect(keep = false): Promise<void> {
  attempt += 1;
  const last = link;
  link = null;
  if (keep && last) await last.ask('shutdown', '{}', 5000).catch(() => {});
  if (last) shut(last);
  batch(() => {
    state.value = { at: 'idle' };
    notice.value = keep ? 'Disconnected. Outputs stay as they are.' : 'Disconnected. The rig switches its outputs off.';
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

async function returned(place: Place & { kind: 'serial' }): Promise<SerialPort | undefined> {
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
    state.value = { at: 'ended', place: current.place, why: 'the board was unplugged', unplugged: true };
    notice.value = 'The board was unplugged.';
  });
}

/** An operation's own answer, or why there is none. */
export interface Outcome {
  status: Status;
  message: string;
  outputs: Map<string, string>;
}

/** Calls an operation, as a call that the history shows. */
export function run(operation: string, args: string, timeout: number): Call {
  const call: Call = { number: ++numbers, operation, args, timeout, status: 'waiting', begun: Date.now(), milliseconds: null, message: '', outputs: [], droppedOutputs: 0 };
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

/** Ends the call that runs: the session ends with it, so that the rig switches its outputs off, and begins again. */
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
  const finish = (status: Status, message: string, outputs = new Map<string, string>(), time: number | null = null): Outcome => {
    const kept = [...outputs].slice(0, OUTPUTS).map(([name, value]): [string, string] => [cut(name, 1000), cut(value, OUTPUT_LIMIT)]);
    tell({ status, message: cut(message, OUTPUT_LIMIT), outputs: kept, droppedOutputs: outputs.size - kept.length, milliseconds: time });
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
    const answer = await mine.ask('execute', params, timeout * 1000 + 2000);
    return finish(...outcomeOf(answer), performance.now() - begun);
  } catch (error) {
    const time = performance.now() - begun;
    if (cancelled) {
      void connect(current.place);
      return finish('cancelled', 'The call was cancelled. A new session began, so the rig switched its outputs off.', undefined, time);
    }
    if (error instanceof Silent) {
      void connect(current.place);
      return finish('lost', `There was ${error.message}. A new session began, so the rig switched its outputs off.`, undefined, time);
    }
    return finish('lost', error instanceof Gone ? `There is no answer: ${error.message}.` : messageOf(error), undefined, time);
  } finally {
    running = null;
  }
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
    requestLimit: typeof limit === 'number' ? limit : null,
  };
}
