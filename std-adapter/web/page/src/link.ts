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

/** How long lines are read at once, in milliseconds, so that the page is drawn and answers while many come. */
const SLICE = 6;
/** How many bytes are read at once. */
const PIECE = 8 << 10;

export class Gone extends Error {}
export class Silent extends Error {}

/** One connection: requests out, answers matched by their ids. It keeps nothing of what has passed. */
export class Link {
  readonly #client = new Client(Math.floor(Math.random() * 2 ** 30));
  readonly #decoder: Decoder;
  readonly #waiting = new Map<number, { resolve: (answer: Answered) => void; reject: (error: Error) => void }>();
  #gone: Gone | null = null;
  /** What has arrived, and waits for its turn. */
  #arrived: Uint8Array[] = [];
  #isDue = false;
  readonly #turns = new MessageChannel();

  constructor(
    private readonly transport: Transport,
    readonly isSerial: boolean,
    private readonly handlers: Handlers,
  ) {
    this.#decoder = new Decoder({ serial: isSerial });
    // A message to itself comes behind what the page has to draw and to answer, and is not slowed down in a hidden page, as timers are.
    this.#turns.port1.onmessage = () => {
      this.#isDue = false;
      this.#work(SLICE);
    };
    transport.onData = (data) => {
      if (this.#gone !== null) return;
      this.#arrived.push(data);
      this.#ask();
    };
    transport.onEnd = (why) => {
      this.#work(Number.POSITIVE_INFINITY);
      if (this.#gone === null) this.#take(this.#decoder.end());
      this.#end(why || 'the connection is gone');
    };
  }

  #ask(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    this.#turns.port2.postMessage(0);
  }

  /** Reads what has arrived, in pieces, for so many milliseconds; the rest waits for the next turn. */
  #work(time: number): void {
    const end = performance.now() + time;
    let at = 0;
    while (at < this.#arrived.length && this.#gone === null) {
      const first = at;
      let size = 0;
      while (at < this.#arrived.length && (size === 0 || size < PIECE)) size += (this.#arrived[at++] as Uint8Array).length;
      this.#take(this.#decoder.push(at - first === 1 ? (this.#arrived[first] as Uint8Array) : joined(this.#arrived.slice(first, at), size)));
      if (performance.now() >= end) break;
    }
    this.#arrived = this.#gone === null ? this.#arrived.slice(at) : [];
    if (this.#arrived.length > 0) this.#ask();
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
    this.#arrived = [];
    this.#turns.port1.close();
    for (const { reject } of [...this.#waiting.values()]) reject(this.#gone);
    this.handlers.onEnd(why);
  }
}

function joined(pieces: Uint8Array[], size: number): Uint8Array {
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
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
