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
  /** Its state is asked for again and again: another page started it, or this page before it was loaded anew. */
  isLookedAt?: boolean;
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
  /** `pass`, `fail`, `rig_error` or `cancelled`, as the reports of the run say it; none of a run that goes on, or whose process was killed. */
  verdict?: string | null;
  /** Why it did not pass, or which failures its threshold allows. */
  reason?: string | null;
  tasks?: { id: string; status: string; durationMs?: number; values?: Record<string, number> }[];
}

interface Step {
  id: string | null;
  operation: string;
  phase: string;
  status: string;
  message: string | null;
  outputs: Record<string, string>;
  durationMs: number;
}

export interface Trial {
  task: string;
  trial: number;
  attempts: number;
  status: string;
  /** What the status means: also `flaky` and `rig_error`. */
  verdict?: string;
  error: string | null;
  steps: Step[];
  graders: { name: string; status: string; message: string | null }[];
  durationMs: number;
}

/** One run, with all that its record has. */
export interface Detail extends Run {
  target: string | null;
  totalTasks: number;
  trialsPerTask: number;
  trials: Trial[];
  logs: { atMs: number; level: string; message: string }[];
  leftOut: number;
}

const LOGS = 500;
/** How often a run is looked at that this page did not start, in milliseconds. */
const LOOK = 1000;

export const evals = signal<Eval[] | null>(null);
export const runs = signal<Run[] | null>(null);
export const current = signal<Running | null>(null);
export const failure = signal<string | null>(null);
/** The earlier run that is open. */
export const opened = signal<Detail | { runId: string; why: string } | null>(null);

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
        const run = current.value;
        if (run && run.summary === null && !run.isLookedAt) current.value = { ...run, error: why, status: 'unknown' };
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
    const before = current.value;
    const isFree = before === null || before.status === 'unknown' || (before.isLookedAt === true && before.status !== 'running' && before.status !== 'cancelling');
    const active = runs.value.find((run) => run.status === 'running');
    if (active && isFree) void follow(active);
    else if (before?.status === 'unknown' && before.runId !== null) {
      const found = runs.value.find((run) => run.runId === before.runId);
      if (found) void follow(found);
    }
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

/** Shows a run that goes on, until it has ended. */
async function follow(run: Run): Promise<void> {
  const mine = () => current.value?.isLookedAt === true && current.value.runId === run.runId;
  const empty: Running = { name: run.name, runId: run.runId, status: run.status, tasks: [], logs: [], droppedLogs: 0, summary: null, error: null, isLookedAt: true };
  current.value = empty;
  let names = new Map<string, string>();
  try {
    const listed = await request('task.list', { path: run.path });
    if (Array.isArray(listed.tasks)) names = new Map((listed.tasks as { id: string; name?: string }[]).map((task) => [task.id, task.name ?? task.id]));
  } catch {
    // The eval may have been moved. The tasks that are done have names.
  }
  while (mine()) {
    try {
      const found = await ask<Detail>(`api/run?id=${encodeURIComponent(run.runId)}`);
      if (!mine()) return;
      const isOver = found.status !== 'running';
      const isCancelling: boolean = current.value?.status === 'cancelling';
      current.value = {
        ...empty,
        status: isOver ? found.status : isCancelling ? 'cancelling' : 'running',
        tasks: tasksOf(found, names, isOver),
        logs: found.logs.slice(-LOGS).map((log) => log.message),
        droppedLogs: Math.max(0, found.logs.length - LOGS),
        summary: isOver ? { total: found.total, passed: found.passed, failed: found.failed } : null,
        error: found.error,
      };
      if (isOver) return void loadRuns();
    } catch (error) {
      if (!mine()) return;
      current.value = { ...(current.value as Running), error: messageOf(error) };
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK));
  }
}

function tasksOf(run: Detail, names: ReadonlyMap<string, string>, isOver: boolean): Task[] {
  const done = new Map((run.tasks ?? []).map((task) => [task.id, task]));
  const begun = new Set(run.trials.map((trial) => trial.task));
  const ids = [...new Set([...names.keys(), ...done.keys(), ...begun])];
  return ids.map((id) => {
    const task = done.get(id);
    const trials = run.trials.filter((trial) => trial.task === id).length;
    const isBegun = run.logs.some((log) => log.message === `Running task: ${id}`);
    return { id, name: names.get(id) ?? id, status: task?.status ?? (isOver ? 'skipped' : isBegun || trials > 0 ? 'running' : 'waiting'), milliseconds: task?.durationMs ?? null, trials: task || trials === 0 ? '' : `trial ${trials} of ${run.trialsPerTask} is done` };
  });
}

/** Opens an earlier run, or closes it. */
export async function open(runId: string): Promise<void> {
  if (opened.value?.runId === runId) {
    opened.value = null;
    return;
  }
  try {
    opened.value = await ask<Detail>(`api/run?id=${encodeURIComponent(runId)}`);
  } catch (error) {
    opened.value = { runId, why: messageOf(error) };
  }
}

// When the server is back, its evals are asked for again.
state.subscribe((now) => {
  if (now.at === 'ready' && failure.value !== null) queueMicrotask(() => void load());
});
