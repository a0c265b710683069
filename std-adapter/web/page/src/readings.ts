import { computed, effect, signal } from '@preact/signals';
import * as poll from './poll';
import { conversion, reading } from './reading';
import { calls } from './session';
import { oneLine } from './text';

/** An output that is always in sight, with its limits. */
export interface Pinned {
  id: number;
  operation: string;
  /** JSON text. */
  args: string;
  output: string;
  /** What the user wrote; empty: no limit. */
  least: string;
  most: string;
}

export interface Judged {
  /** `good` and `bad` by its limits; `none` without limits or without a value. */
  state: 'good' | 'bad' | 'none';
  words: string;
}

export interface Alarm {
  pinned: number;
  label: string;
  since: number;
  words: string;
}

const KEY = 'rigline-readings';
/** How many readings there may be. */
const MOST = 32;

export const pinned = signal<Pinned[]>(remembered());
/** What was outside its limits, until the user has acknowledged it. */
export const alarms = signal<Alarm[]>([]);
export const hasSound = signal(false);

let next = Math.max(0, ...pinned.value.map((one) => one.id)) + 1;

effect(() => {
  try {
    localStorage.setItem(KEY, JSON.stringify(pinned.value));
  } catch {
    // A browser that keeps nothing: readings last as long as the page.
  }
});

function remembered(): Pinned[] {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? '[]') as unknown;
    const isPinned = (one: Partial<Pinned>) => typeof one.id === 'number' && [one.operation, one.args, one.output, one.least, one.most].every((text) => typeof text === 'string');
    return Array.isArray(found) ? (found as Pinned[]).filter(isPinned).slice(0, MOST) : [];
  } catch {
    return [];
  }
}

export function isPinned(operation: string, args: string, output: string): boolean {
  return pinned.value.some((one) => one.operation === operation && one.args === args && one.output === output);
}

export function pin(operation: string, args: string, output: string, text: string): void {
  if (isPinned(operation, args, output) || pinned.value.length >= MOST) return;
  pinned.value = [...pinned.value, { id: next++, operation, args, output, least: '', most: '' }];
  const series = poll.follow(operation, args, output);
  if (series && series.column.now === null) poll.hear(operation, args, [[output, text]]);
}

export function unpin(id: number): void {
  const gone = pinned.value.find((one) => one.id === id);
  pinned.value = pinned.value.filter((one) => one.id !== id);
  if (gone && !pinned.value.some((one) => one.operation === gone.operation && one.args === gone.args)) poll.unfollow(gone.operation, gone.args);
  acknowledge(id);
}

export function limit(id: number, what: { least?: string; most?: string }): void {
  pinned.value = pinned.value.map((one) => (one.id === id ? { ...one, ...what } : one));
}

export function acknowledge(id: number): void {
  alarms.value = alarms.value.filter((one) => one.pinned !== id);
}

export function labelOf({ operation, args, output }: Pinned): string {
  return `${poll.nameOf({ operation, args })}: ${output}`;
}

export function seriesOf(one: Pinned): poll.Plotted | null {
  return poll.find(one.operation, one.args, one.output);
}

/** What a limit says is wrong with it; null where nothing is. */
export function limitProblem(text: string): string | null {
  if (text.trim() === '') return null;
  const found = reading(text);
  return 'why' in found ? 'This must be a number, such as 3.3.' : null;
}

/** A limit in the unit of the series. */
function limitOf(text: string, unit: string): number | null {
  const found = text.trim() === '' ? null : reading(text);
  if (found === null || 'why' in found) return null;
  const power = conversion(found.unit, unit) ?? 0;
  return power === 0 ? found.value : Number(`${found.value}e${power}`);
}

export function judge(one: Pinned): Judged {
  const column = seriesOf(one)?.column;
  if (!column?.now) return { state: 'none', words: 'no value yet' };
  const [least, most] = [limitOf(one.least, column.unit), limitOf(one.most, column.unit)];
  if (least === null && most === null) return { state: 'none', words: column.problem ?? 'no limits' };
  const { value } = column.now;
  if (value === null) return { state: 'bad', words: column.problem ?? 'no number' };
  if (least !== null && value < least) return { state: 'bad', words: `below ${one.least.trim()}` };
  if (most !== null && value > most) return { state: 'bad', words: `above ${one.most.trim()}` };
  return { state: 'good', words: least === null ? `at most ${one.most.trim()}` : most === null ? `at least ${one.least.trim()}` : `within ${one.least.trim()} to ${one.most.trim()}` };
}

// Each new value is judged: one outside its limits raises an alarm, which stays when the value comes back.
effect(() => {
  void poll.version.value;
  for (const one of pinned.value) {
    const judged = judge(one);
    if (judged.state !== 'bad' || alarms.peek().some((alarm) => alarm.pinned === one.id)) continue;
    const text = seriesOf(one)?.column.now?.text ?? '';
    alarms.value = [...alarms.peek(), { pinned: one.id, label: labelOf(one), since: Date.now(), words: `${oneLine(text, 40)}, ${judged.words}` }];
    if (hasSound.peek()) beep();
  }
});

/** Whether something is outside its limits now. */
export const isBad = computed(() => {
  void poll.version.value;
  return pinned.value.some((one) => judge(one).state === 'bad');
});

let audio: AudioContext | null = null;

/** Two short tones. Browsers allow them only after a click, such as the one that switches the sound on. */
export function beep(): void {
  try {
    audio ??= new AudioContext();
    for (const [at, pitch] of [
      [0, 880],
      [0.25, 660],
    ] as const) {
      const tone = new OscillatorNode(audio, { frequency: pitch });
      const volume = new GainNode(audio, { gain: 0.15 });
      tone.connect(volume).connect(audio.destination);
      tone.start(audio.currentTime + at);
      tone.stop(audio.currentTime + at + 0.18);
    }
  } catch {
    // A computer without sound.
  }
}

// A call that the user makes gives a value, too.
let heard = 0;
effect(() => {
  for (const call of calls.value) {
    if (call.number <= heard) break;
    if (call.status === 'waiting' || call.status === 'running') continue;
    if (call.status === 'done') poll.hear(call.operation, call.args, call.outputs);
    heard = Math.max(heard, call.number);
  }
});

/** What was pinned before a reload is sampled again when the user starts it. */
export function restore(): void {
  for (const one of pinned.value) poll.follow(one.operation, one.args, one.output);
}
