import { isObject, parseExact } from './exact';
import { type Answer, Client, Decoder, type Log, type Message, type Transport } from './rigline';

/** An answer, and the line that it stands in. */
type Answered = Answer & { line: string };

export interface Handlers {
  onLog: (log: Log) => void;
  /** Each line, in both directions. */
  onLine: (direction: 'sent' | 'got', text: string, fault: string | null) => void;
  /** Once: the connection is gone. */
  onEnd: (why: string, code: number | null) => void;
  /** Who else is connected, where the server says it. */
  onClients: (clients: Clients) => void;
}

/** A client of the server, as it says itself. */
export interface ClientState {
  id: number;
  name: string;
  /** How many calls it has made. */
  calls: number;
  state: 'idle' | 'waiting' | 'running';
  operation: string;
  /** For how long `state` has been so, in milliseconds. */
  forMs: number;
  /** How long its newest call has waited for its turn, in milliseconds. */
  waitedMs: number;
}

export interface Clients {
  you: number;
  clients: ClientState[];
}

/** What becomes of a call while it is out. */
export interface Turn {
  /** Null: it has its turn. */
  waitsFor: ClientState | null;
  /** How long it has waited so far, in milliseconds. */
  waited: number;
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
  /** Calls without an answer, by their number on this connection. */
  readonly #calls = new Map<number, (turn: Turn) => void>();
  #sent = 0;
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
    transport.onEnd = (why, code) => {
      this.#work(Number.POSITIVE_INFINITY);
      if (this.#gone === null) this.#take(this.#decoder.end());
      this.#end(why || 'the connection is gone', code ?? null);
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

  /** `onTurn`: of a call, when it begins to wait for another client, and when its turn comes. The time that it waits does not count. */
  ask(method: string, params: string, patience: number, onTurn: (turn: Turn) => void = () => {}): Promise<Answered> {
    if (this.#gone) return Promise.reject(this.#gone);
    const { id, line } = this.#client.request(method, params);
    const number = method === 'execute' ? ++this.#sent : 0;
    return new Promise<Answered>((resolve, reject) => {
      const late = () => {
        this.#waiting.delete(id);
        this.#calls.delete(number);
        reject(new Silent(`no answer within ${patience / 1000} s`));
      };
      let timer: ReturnType<typeof setTimeout> | undefined = setTimeout(late, patience);
      const settled = <T>(act: (value: T) => void) => (value: T) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        this.#calls.delete(number);
        act(value);
      };
      this.#waiting.set(id, { resolve: settled(resolve), reject: settled(reject) });
      if (number > 0) {
        this.#calls.set(number, (turn) => {
          if (turn.waitsFor !== null) {
            clearTimeout(timer);
            timer = undefined;
          } else timer ??= setTimeout(late, patience);
          onTurn(turn);
        });
      }
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
      if (message.method === 'rigline/clients' && message.kind === 'notification') {
        this.#told(line);
        continue;
      }
      this.handlers.onLine('got', line, fault === null ? null : fault.reason);
      for (const event of this.#client.receive(message.bytes)) {
        if ('reply' in event) this.#waiting.get(event.reply.id)?.resolve({ ...event.reply.answer, line });
        else if ('log' in event) this.handlers.onLog(event.log);
        else if ('send' in event) this.#send(event.send);
      }
    }
  }

  #told(line: string): void {
    const told = clientsIn(line);
    if (told === null) return;
    this.handlers.onClients(told);
    const own = told.clients.find((one) => one.id === told.you);
    if (!own) return;
    for (const [number, tell] of this.#calls) {
      if (number > own.calls) continue;
      // A call that is not the newest one any more has had its turn.
      const waits = number === own.calls && own.state === 'waiting';
      const holder = told.clients.find((one) => one.state === 'running' && one.id !== own.id) ?? null;
      if (!waits) tell({ waitsFor: null, waited: number === own.calls ? own.waitedMs : 0 });
      else if (holder) tell({ waitsFor: holder, waited: own.forMs });
    }
  }

  #end(why: string, code: number | null = null): void {
    if (this.#gone) return;
    this.#gone = new Gone(why);
    this.#arrived = [];
    this.#turns.port1.close();
    for (const { reject } of [...this.#waiting.values()]) reject(this.#gone);
    this.handlers.onEnd(why, code);
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

function clientsIn(line: string): Clients | null {
  try {
    const { params } = JSON.parse(line) as { params?: Partial<Clients> };
    return typeof params?.you === 'number' && Array.isArray(params.clients) ? { you: params.you, clients: params.clients } : null;
  } catch {
    return null;
  }
}
