import type { Event } from './session.js';
export { Rig, RiglineError, duration, toJson } from './session.js';
export type { Answer, CallOptions, Event, Json, Kind as ErrorKind, Log, Manifest, Operation, Options, Result, Transport } from './session.js';
export { webSerial, webSocket } from './transports.js';
export type { Port, WebSerialOptions } from './transports.js';
/** Whose a message is. */
export type Protocol = 'gevals' | 'amplifier' | 'namel3ss' | 'waza' | 'mcp';
/**
 * What a line is. `reply` is an answer that says yes, `error` one that says no: a JSON-RPC error, `ok: false` or `success: false`. `event`
 * is an entry of an Amplifier event log, `json` is JSON that is no message, and `fault` is no JSON, or a line that is too long.
 */
export type Kind = 'request' | 'notification' | 'log' | 'reply' | 'error' | 'event' | 'batch' | 'json' | 'fault';
/** What is wrong with a text. */
export interface Fault {
    /** Where: the offset in bytes of the byte that cannot stand there. */
    readonly position: number;
    /** Its kind, such as `unexpected-end`, `not-utf8` or `too-long`. */
    readonly kind: string;
    /** It in words. */
    readonly reason: string;
}
/**
 * Loads the module, once. Without a source it is the file `rigline_web.wasm` beside this one. A worker is best given what `module()` gives
 * here, so that it need not compile it again.
 */
export declare function load(source?: URL | string | ArrayBuffer | ArrayBufferView<ArrayBuffer> | WebAssembly.Module): Promise<void>;
/** The compiled module, to be handed to a worker. */
export declare function module(): WebAssembly.Module;
/** Checks that a text is one JSON text (RFC 8259, with at most 128 containers open at once); gives what is wrong with it. */
export declare function validate(text: string | Uint8Array): Fault | null;
/** A line of a stream. Its texts are made when they are asked for. */
export declare class Message {
    #private;
    /** Only decoders make messages. */
    constructor(source: Uint8Array, words: Uint32Array, at: number, limit: number);
    get kind(): Kind;
    get protocol(): Protocol | null;
    /** The line's number in the stream, from 1. Blank lines count. */
    get number(): number;
    /** Where the line's content begins in the stream, in bytes. */
    get offset(): number;
    /** How many bytes of the stream the line's content has, white space before its end apart. */
    get length(): number;
    /** The line; of an entry of a recording, the line that was recorded. Empty for a line that is too long. */
    get bytes(): Uint8Array;
    /** It as a text. What is not UTF-8 becomes U+FFFD. */
    get raw(): string;
    /** The method; Amplifier's `op`, namel3ss's tool, or the event's name. */
    get method(): string | null;
    /** What is called: the operation, tool or eval. */
    get operation(): string | null;
    /** The id's JSON text, as it came. */
    get id(): string | null;
    get fault(): Fault | null;
    /** Of an entry of what `rigline monitor --record` writes: which way the line went, and when, in milliseconds from the beginning. */
    get recorded(): {
        readonly direction: 'sent' | 'received';
        readonly time: number;
    } | null;
    /** Copies what it needs, so that the bytes around it can be freed. A message that is kept for long should be. */
    detach(): this;
}
/** Decodes a stream of lines, however its bytes are cut. */
export declare class Decoder {
    #private;
    /** `limit`: the longest line, in bytes (16 MiB). `serial`: a lone CR ends a line too, as terminals on serial ports send it. */
    constructor({ limit, serial }?: {
        limit?: number;
        serial?: boolean;
    });
    /** Takes the next bytes, and gives the lines that are whole now. The bytes are copied. */
    push(bytes: Uint8Array): Message[];
    /** The stream has ended: gives its last line, if no newline ends it. */
    end(): Message[];
    /** Forgets everything, for a new stream. */
    reset(): void;
}
/** The host's half of a session, without I/O. `Rig.open(transport, { session: new Client() })` has a session with it. */
export declare class Client {
    #private;
    /** Ids begin behind `base`: for servers that outlive the client it should be random. */
    constructor(base?: number);
    /** A request's id, and its line with the newline. `params` is JSON text. Up to eight requests may be out. */
    request(method: string, params: string): {
        id: number;
        line: string;
    };
    /** What a line is: a list of `{ reply }`, `{ log }`, `{ send }` and `{ noise }`, as several messages may stand on it. */
    receive(line: string | Uint8Array): Event[];
}
