import { Client, Decoder, type Message, type Transport } from './rigline';

/** An answer of the other side, in the words of the client in rigline.js. */
export interface Answer {
  kind: 'success' | 'failed' | 'refused' | 'invalid';
  message?: string;
  error?: string;
  code?: number | null;
  data?: unknown;
  outputs?: Map<string, string>;
  result?: unknown;
}

export interface LogLine {
  level: 'debug' | 'info' | 'warn' | 'error';
  message: string;
  data: unknown;
}

export interface Handlers {
  onLog: (log: LogLine) => void;
  /** Each line, in both directions. */
  onLine: (direction: 'sent' | 'got', text: string, fault: string | null) => void;
  /** Once: the connection is gone. */
  onEnd: (why: string) => void;
}

export class Gone extends Error {}
export class Silent extends Error {}

const PARAMS_VERSION = '0.0.1';

/** One connection: requests out, answers matched by their ids. It keeps nothing of what has passed. */
export class Link {
  readonly #client = new Client(Math.floor(Math.random() * 2 ** 30));
  readonly #decoder: Decoder;
  readonly #waiting = new Map<number, { resolve: (answer: Answer) => void; reject: (error: Error) => void }>();
  #gone: Gone | null = null;

  constructor(
    private readonly transport: Transport,
    readonly isSerial: boolean,
    private readonly handlers: Handlers,
  ) {
    this.#decoder = new Decoder({ serial: isSerial });
    transport.onData = (data) => {
      if (this.#gone === null) this.#take(this.#decoder.push(data));
    };
    transport.onEnd = (why) => {
      if (this.#gone === null) this.#take(this.#decoder.end());
      this.#end(why || 'the connection is gone');
    };
  }

  async open(patience = 15_000): Promise<Record<string, unknown>> {
    const answer = await this.ask('initialize', `{"protocolVersion":"${PARAMS_VERSION}"}`, patience);
    if (answer.kind === 'success' && typeof answer.result === 'object' && answer.result !== null) {
      return answer.result as Record<string, unknown>;
    }
    throw new Error(answer.error ?? 'the answer to initialize is not a manifest');
  }

  ask(method: string, params: string, patience: number): Promise<Answer> {
    if (this.#gone) return Promise.reject(this.#gone);
    const { id, line } = this.#client.request(method, params);
    return new Promise<Answer>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(id);
        reject(new Silent(`no answer within ${patience / 1000} s`));
      }, patience);
      const settled = <T>(act: (value: T) => void) => (value: T) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        act(value);
      };
      this.#waiting.set(id, { resolve: settled(resolve), reject: settled(reject) });
      this.#send(line);
    });
  }

  async close(why = 'the connection was closed'): Promise<void> {
    this.#end(why);
    await this.transport.close();
  }

  #send(line: string): void {
    this.handlers.onLine('sent', line.trimEnd(), null);
    this.transport.send(line);
  }

  #take(messages: Message[]): void {
    for (const message of messages) {
      const fault = message.fault;
      this.handlers.onLine('got', message.raw, fault === null ? null : fault.reason);
      for (const event of this.#client.receive(message.bytes)) {
        if ('reply' in event) this.#waiting.get(event.reply.id)?.resolve(event.reply.answer);
        else if ('log' in event) this.handlers.onLog(event.log);
        else if ('send' in event) this.#send(event.send);
      }
    }
  }

  #end(why: string): void {
    if (this.#gone) return;
    this.#gone = new Gone(why);
    for (const { reject } of [...this.#waiting.values()]) reject(this.#gone);
    this.handlers.onEnd(why);
  }
}
