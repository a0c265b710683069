import { isObject, parseExact } from './exact';
import { type Answer, Client, Decoder, type Log, type Message, type Transport } from './rigline';

/** An answer, and the line that it stands in. */
type Answered = Answer & { line: string };

export interface Handlers {
  onLog: (log: Log) => void;
  /** Each line, in both directions. */
  onLine: (direction: 'sent' | 'got', text: string, fault: string | null) => void;
  /** Once: the connection is gone. */
  onEnd: (why: string) => void;
}

export class Gone extends Error {}
export class Silent extends Error {}

/** One connection: requests out, answers matched by their ids. It keeps nothing of what has passed. */
export class Link {
  readonly #client = new Client(Math.floor(Math.random() * 2 ** 30));
  readonly #decoder: Decoder;
  readonly #waiting = new Map<number, { resolve: (answer: Answered) => void; reject: (error: Error) => void }>();
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
    const answer = await this.ask('initialize', '{"protocolVersion":"0.0.1"}', patience);
    if (answer.kind === 'success' && isObject(answer.result)) return resultIn(answer.line) ?? answer.result;
    throw new Error(answer.error ?? 'the answer to initialize is not a manifest');
  }

  ask(method: string, params: string, patience: number): Promise<Answered> {
    if (this.#gone) return Promise.reject(this.#gone);
    const { id, line } = this.#client.request(method, params);
    return new Promise<Answered>((resolve, reject) => {
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
      const line = message.raw;
      this.handlers.onLine('got', line, fault === null ? null : fault.reason);
      for (const event of this.#client.receive(message.bytes)) {
        if ('reply' in event) this.#waiting.get(event.reply.id)?.resolve({ ...event.reply.answer, line });
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

/** The result in a line, with all digits of its numbers; null if there is something else on the line. */
function resultIn(line: string): Record<string, unknown> | null {
  try {
    const reply = parseExact(line);
    return isObject(reply) && isObject(reply.result) ? reply.result : null;
  } catch {
    return null;
  }
}
