export declare const LINE_LIMIT: number;

/** What went wrong. `failed`: the operation's own logic; `lost`: the other side went away; `invalid`: no usable answer. */
export type Kind =
  | 'failed'
  | 'unknown-operation'
  | 'bad-arguments'
  | 'unreachable'
  | 'forbidden'
  | 'timeout'
  | 'requirement'
  | 'internal'
  | 'too-large'
  | 'refused'
  | 'invalid'
  | 'lost'
  | 'cancelled'
  | 'closed'
  | 'connect';

export interface Log {
  level: 'debug' | 'info' | 'warn' | 'error';
  message: string;
  data: unknown;
}

export interface Result {
  message: string;
  /** The outputs' texts by name, in their order. Values that are not strings come as their JSON text, exactly as it came. */
  outputs: Map<string, string>;
  logs: Log[];
}

export declare class RiglineError extends Error {
  constructor(
    kind: Kind,
    message: string,
    details?: { operation?: string | null; code?: number | null; data?: unknown; result?: Result | null },
  );
  readonly kind: Kind;
  /** The message without the operation's name. */
  readonly text: string;
  readonly operation: string | null;
  readonly code: number | null;
  /** The code that the operation itself has chosen, of an extension that is served by rigline. */
  readonly ownCode: string | null;
  readonly data: unknown;
  /** Of a failed call. */
  readonly result: Result | null;
}

/** A value that JSON has; BigInts are written as numbers. */
export type Json = null | boolean | number | bigint | string | Json[] | { [name: string]: Json | undefined };

export interface Operation {
  description?: string;
  params: unknown;
}

export interface Manifest {
  name: string;
  version: string;
  description?: string;
  operations: Record<string, Operation>;
  [member: string]: unknown;
}

/** A pair of byte streams. */
export interface Transport {
  send(text: string): void;
  /** How many bytes were sent that have not left yet, if that is known. Answers to the other side's own requests are dropped beyond 1 MiB of it. */
  waiting?(): number;
  /** Ends the connection; the other side takes that for a loss. */
  close(): void | Promise<unknown>;
  onData: (data: Uint8Array) => void;
  /** `code`: of a WebSocket that was closed. */
  onEnd: (why?: string, code?: number) => void;
}

export interface Options {
  /** The extension's own settings. */
  config?: Json;
  /** How long a call may take, in seconds, unless it says otherwise: 30. */
  timeout?: number;
  /** How long the extension may take to start, in seconds: 10. */
  startTimeout?: number;
  workdir?: string;
  /** What makes request lines and reads replies, in place of a `Session`: such as rigline-web's `Client`. */
  session?: Pick<Session, 'request' | 'receive'> | undefined;
  /** Ids begin behind this; random for servers that outlive the client. */
  base?: number;
  onLog?: (log: Log) => void;
  /** Gets each line that is not a message. */
  onNoise?: (text: string) => void;
}

export interface CallOptions {
  /** In seconds. */
  timeout?: number;
  phase?: '' | 'setup' | 'verify' | 'cleanup';
  env?: Record<string, string>;
  workdir?: string;
  signal?: AbortSignal;
}

export declare class Rig {
  private constructor(transport: Transport, options?: Options);
  static open(transport: Transport, options?: Options): Promise<Rig>;
  readonly manifest: Manifest;
  call(operation: string, args?: { [name: string]: Json | undefined }, options?: CallOptions): Promise<Result>;
  close(options?: { keep?: boolean }): Promise<void>;
}

export interface Answer {
  kind: 'success' | 'failed' | 'refused' | 'invalid';
  message?: string;
  error?: string;
  code?: number | null;
  data?: unknown;
  outputs?: Map<string, string>;
  result?: unknown;
}

export type Event = { reply: { id: number; answer: Answer } } | { log: Log } | { send: string } | { noise: string };

export declare class Session {
  constructor(base?: number);
  request(method: string, params: string): { id: number; line: string };
  receive(line: string | Uint8Array): Event[];
}

export declare function duration(seconds: number): string;

/** The number that an output's text is, as evals read it. Throws a RiglineError for what is none, such as `inf`, `0x10` and an empty text. */
export declare function number(text: string | undefined): number;

/** Whether an output's text is a number from `low` to `high`, its limits included, with all its digits; null stands for no limit. */
export declare function within(
  text: string | undefined,
  low?: number | bigint | string | null,
  high?: number | bigint | string | null,
): boolean;

export declare function toJson(value: Json, where?: string): string;

/** What answers and logs are, by their JSON values. For clients that read lines in another way. */
export declare function ofError(error: unknown): Answer;
export declare function ofLog(params: unknown): Log;
export declare function ofResult(result: unknown, text: string): Answer;

/** Throws a TypeError unless a value is of one of these types, as `typeof` names them, or of these classes. */
export declare function must(name: string, value: unknown, ...types: string[]): void;
