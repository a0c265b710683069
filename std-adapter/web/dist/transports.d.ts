import type { Transport } from './session.js';
/** The connection to `rigline web`: a text frame is a line, or several where the address has `lines=many`. Rejects with a RiglineError of kind `connect` where there is none. */
export declare function webSocket(url: string | URL): Promise<Transport>;
/** What is used of a `SerialPort` of Web Serial, which not every TypeScript knows. */
export interface Port {
    readonly readable: ReadableStream<Uint8Array> | null;
    readonly writable: WritableStream<Uint8Array> | null;
    open(options: {
        baudRate: number;
        bufferSize?: number;
    }): Promise<void>;
    close(): Promise<void>;
    setSignals(signals: {
        dataTerminalReady?: boolean;
    }): Promise<void>;
    addEventListener(type: 'disconnect', listener: () => void): void;
    removeEventListener(type: 'disconnect', listener: () => void): void;
}
export interface WebSerialOptions {
    /** 115200. USB devices take any. */
    baudRate?: number;
}
/** The connection to a board on a serial port that the user has chosen. Closing it drops DTR, which ends the board's session. */
export declare function webSerial(port: Port, { baudRate }?: WebSerialOptions): Promise<Transport>;
