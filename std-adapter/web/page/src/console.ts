import { signal } from '@preact/signals';
import { type Manifest, type Outcome, execute, manifest, ready } from './session';
import { sleep } from './sleep';
import { oneLine } from './text';

/** How much of the console is kept, in characters. */
const KEPT = 256 * 1024;
/** How long the rig waits for a first byte, in milliseconds: other calls wait so long at most. */
const WAIT = 100;
const READ = 'uart-read';
const WRITE = 'uart-write';
const BREAK = 'uart-break';

/** What the console of the board under test has said. */
export const text = signal('');
export const isFollowing = signal(false);
export const problem = signal('');
/** The bytes that the rig has not kept for this page. */
export const missed = signal(0);
/** The rig's own counts, as it writes them. */
export const counters = signal<readonly [string, string][]>([]);

let mark: string | null = null;
let round = 0;

/** Whether an extension has a console: the operations of the rig, by their names. */
export function hasConsole(known: Manifest | null): boolean {
  const names = known?.operations.map((operation) => operation.name) ?? [];
  return names.includes(READ) && names.includes(WRITE);
}

/** Whether the rig has an operation for a break. */
export function hasBreak(): boolean {
  return manifest.value?.operations.some((operation) => operation.name === BREAK) ?? false;
}

export function follow(on: boolean): void {
  round += 1;
  isFollowing.value = on;
  problem.value = '';
  if (on) void read(round);
}

export function clear(): void {
  text.value = '';
  missed.value = 0;
}

/** Sends a line, as a terminal does: with a carriage return. */
export async function send(line: string): Promise<void> {
  const data = `${line.replaceAll('\\', '\\\\')}\r`;
  tell(await execute(WRITE, JSON.stringify({ data }), 30));
}

export async function sendBreak(): Promise<void> {
  tell(await execute(BREAK, '{}', 10));
}

function tell(outcome: Outcome): void {
  problem.value = outcome.status === 'done' ? '' : oneLine(outcome.message, 300);
}

/** Reads from a mark, which takes nothing from others who wait for a text. */
async function read(mine: number): Promise<void> {
  while (mine === round) {
    if (!ready.value) {
      mark = null;
      await sleep(300);
      continue;
    }
    const outcome = await execute(READ, `{"since":${mark ?? '0'},"within_ms":${WAIT}}`, 10);
    if (mine !== round) return;
    if (outcome.status !== 'done') {
      tell(outcome);
      // The rig may have started anew, and counts from 0.
      mark = null;
      await sleep(1000);
      continue;
    }
    problem.value = '';
    take(new Map(outcome.outputs));
    await sleep(20);
  }
}

function take(outputs: ReadonlyMap<string, string>): void {
  const isFirst = mark === null;
  const lost = Number(outputs.get('missed') ?? 0);
  if (!isFirst && lost > 0) {
    missed.value += lost;
    add(`\n[${lost} bytes were not kept]\n`);
  }
  add(said(outputs.get('data') ?? ''));
  const next = outputs.get('mark') ?? '';
  mark = /^\d+$/.test(next) ? next : null;
  const names = ['received', 'dropped', 'framing_errors', 'parity_errors', 'overruns', 'breaks'];
  const now = names.flatMap((name): [string, string][] => (outputs.has(name) ? [[name, outputs.get(name) as string]] : []));
  if (String(now) !== String(counters.value)) counters.value = now;
}

function add(more: string): void {
  if (more !== '') text.value = (text.value + more).slice(-KEPT);
}

/** The text of the rig's encoding. A byte that is no text is a mark, but those of escape sequences are themselves. */
function said(encoded: string): string {
  const own = encoded.replace(/\\(?:x([0-9a-f]{2})|(.))/gs, (_, digits?: string, char?: string) => {
    if (digits === undefined) return char ?? '';
    const code = Number.parseInt(digits, 16);
    return code < 0x80 ? String.fromCharCode(code) : '\ufffd';
  });
  return own.replace(/\r+\n/g, '\n').replace(/\r/g, '\n');
}
