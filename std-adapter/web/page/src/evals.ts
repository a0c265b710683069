import { batch, signal } from '@preact/signals';
import { ask, socketAddress } from './address';
import { isObject } from './exact';
import { disconnect, notice, placeOf, state } from './session';
import { messageOf } from './text';

export interface Eval {
  path: string;
  name: string;
}

interface Task {
  id: string;
  name: string;
  /** `waiting`, or what the server says. */
  status: string;
  milliseconds: number | null;
  trials: string;
}

export interface Running {
  name: string;
  runId: string | null;
  /** `starting`, `running`, `cancelling`, `refused`, `unknown`, or what the server says. */
  status: string;
  tasks: Task[];
  logs: string[];
  droppedLogs: number;
  summary: { total: number; passed: number; failed: number } | null;
  error: string | null;
}

export interface Run {
  runId: string;
  name: string;
  path: string;
  startedAtMs: number;
  status: string;
  total: number;
  passed: number;
  failed: number;
  error: string | null;
  tasks?: { id: string; status: string; durationMs?: number; values?: Record<string, number> }[];
}

const LOGS = 500;

export const evals = signal<Eval[] | null>(null);
export const runs = signal<Run[] | null>(null);
export const current = signal<Running | null>(null);
export const failure = signal<string | null>(null);

/** The connection, or the one that is being opened. */
let socket: Promise<WebSocket> | null = null;
let next = 1;
const waiting = new Map<number, { resolve: (result: Record<string, unknown>) => void; reject: (error: Error) => void }>();

function connection(): Promise<WebSocket> {
  socket ??= new Promise((resolve, reject) => {
    const made = new WebSocket(socketAddress('evals'));
    made.onopen = () => resolve(made);
    made.onmessage = ({ data }) => typeof data === 'string' && hear(data);
    made.onclose = ({ code, reason }) => {
      socket = null;
      const why = reason || (code === 4404 ? 'this server has no evals' : 'the connection to the evals is gone');
      batch(() => {
        failure.value = why;
        if (current.value && current.value.summary === null) current.value = { ...current.value, error: why, status: 'unknown' };
      });
      for (const one of waiting.values()) one.reject(new Error(why));
      waiting.clear();
      reject(new Error(why));
    };
  });
  return socket;
}

async function request(method: string, params: unknown): Promise<Record<string, unknown>> {
  const open = await connection();
  const id = next++;
  return new Promise((resolve, reject) => {
    waiting.set(id, { resolve, reject });
    open.send(JSON.stringify({ jsonrpc: '2.0', id, method, params }));
  });
}

function hear(line: string): void {
  let message: unknown;
  try {
    message = JSON.parse(line);
  } catch {
    return;
  }
  if (!isObject(message)) return;
  if (typeof message.method === 'string') return told(message.method, isObject(message.params) ? message.params : {});
  const asked = typeof message.id === 'number' ? waiting.get(message.id) : undefined;
  if (!asked) return;
  waiting.delete(message.id as number);
  if (isObject(message.error)) asked.reject(new Error(refusal(message.error)));
  else asked.resolve(isObject(message.result) ? message.result : {});
}

function refusal(error: Record<string, unknown>): string {
  const message = typeof error.message === 'string' ? error.message : 'the server refused';
  const details = isObject(error.data) && Array.isArray(error.data.errors) ? error.data.errors.filter((one) => typeof one === 'string') : [];
  return [message, ...details.slice(0, 20)].join('\n');
}

function told(method: string, params: Record<string, unknown>): void {
  const run = current.value;
  if (!run || (run.runId !== null && params.runId !== run.runId)) return;
  if (method === 'eval.log') {
    const logs = [...run.logs, String(params.message ?? '').slice(0, 2000)];
    const extra = Math.max(0, logs.length - LOGS);
    current.value = { ...run, logs: logs.slice(extra), droppedLogs: run.droppedLogs + extra };
  } else if (method === 'eval.complete') {
    const summary = isObject(params.summary) ? params.summary : {};
    const count = (value: unknown) => (typeof value === 'number' ? value : 0);
    current.value = {
      ...run,
      summary: { total: count(summary.total), passed: count(summary.passed), failed: count(summary.failed) },
      error: typeof params.error === 'string' ? params.error : run.error,
    };
    void loadRuns();
  } else if (method === 'eval.progress') progress(run, params);
}

function progress(run: Running, params: Record<string, unknown>): void {
  const { event, taskName: id, status, durationMs } = params;
  if (event === 'run_complete') {
    current.value = { ...run, status: String(status ?? 'done') };
    return;
  }
  if (typeof id !== 'string') return;
  const change = (what: Partial<Task>) => {
    const known = run.tasks.some((task) => task.id === id);
    const tasks = known ? run.tasks : [...run.tasks, { id, name: id, status: 'waiting', milliseconds: null, trials: '' }];
    current.value = { ...run, tasks: tasks.map((task) => (task.id === id ? { ...task, ...what } : task)) };
  };
  if (event === 'task_start') change({ status: 'running' });
  else if (event === 'trial_start') change({ trials: `trial ${params.trialNum} of ${params.totalTrials}` });
  else if (event === 'task_complete') change({ status: String(status), milliseconds: typeof durationMs === 'number' ? durationMs : null, trials: '' });
}

export async function load(): Promise<void> {
  try {
    const listed = await request('eval.list', { directory: '.' });
    batch(() => {
      failure.value = null;
      evals.value = Array.isArray(listed.evals) ? (listed.evals as Eval[]) : [];
    });
  } catch (error) {
    failure.value = messageOf(error);
  }
  await loadRuns();
}

async function loadRuns(): Promise<void> {
  try {
    runs.value = (await ask<{ runs: Run[] }>('api/runs')).runs;
  } catch (error) {
    failure.value = messageOf(error);
  }
}

export async function run(one: Eval): Promise<void> {
  current.value = { name: one.name, runId: null, status: 'starting', tasks: [], logs: [], droppedLogs: 0, summary: null, error: null };
  try {
    // The server opens the board for an eval, which it cannot while this page holds it by Web Serial.
    if (placeOf(state.value)?.kind === 'serial') {
      await disconnect(true);
      notice.value = 'The live session was ended, so that the eval can open the board.';
    }
    const listed = await request('task.list', { path: one.path });
    const tasks = Array.isArray(listed.tasks) ? (listed.tasks as { id: string; name?: string }[]) : [];
    current.value = { ...(current.value as Running), tasks: tasks.map((task) => ({ id: task.id, name: task.name ?? task.id, status: 'waiting', milliseconds: null, trials: '' })) };
    const begun = await request('eval.run', { path: one.path });
    current.value = { ...(current.value as Running), runId: String(begun.runId ?? ''), status: 'running' };
  } catch (error) {
    current.value = { ...(current.value as Running), status: 'refused', error: messageOf(error) };
  }
}

export async function stop(): Promise<void> {
  const one = current.value;
  if (!one?.runId) return;
  current.value = { ...one, status: 'cancelling' };
  try {
    await request('run.cancel', { runId: one.runId });
  } catch (error) {
    current.value = { ...one, error: messageOf(error) };
  }
}
