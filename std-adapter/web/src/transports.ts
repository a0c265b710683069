// The ways by which a page reaches a rig: the WebSocket of `rigline web`, and Web Serial.

import type { Transport } from '../../js/src/index.js';
import { RiglineError, must } from '../../js/src/rig.js';

const encoder = new TextEncoder();

/** What a WebSocket's end means if it gives no reason. */
const ENDS = new Map([
  [1001, 'the server stops'],
  [1006, 'the connection was cut'],
  [1009, 'the frame is too long'],
]);

/** The connection to `rigline web`: a text frame is a line, or several where the address has `lines=many`. Rejects with a RiglineError of kind `connect` where there is none. */
export function webSocket(url: string | URL): Promise<Transport> {
  return new Promise((resolve, reject) => {
    must('url', url, 'string', 'URL');
    const socket = new WebSocket(url);
    let ended = () => {};
    const gone = new Promise<void>((done) => (ended = done));
    const transport: Transport = {
      onData: () => {},
      onEnd: () => {},
      send: (text) => {
        must('text', text, 'string');
        if (socket.readyState === WebSocket.OPEN) socket.send(text.replace(/\n$/, ''));
      },
      waiting: () => socket.bufferedAmount,
      close: () => {
        socket.close();
        return gone;
      },
    };
    socket.onopen = () => resolve(transport);
    socket.onmessage = ({ data }: MessageEvent<unknown>) => {
      if (typeof data === 'string') transport.onData(encoder.encode(`${data}\n`));
    };
    socket.onclose = ({ code, reason }) => {
      const why = reason || (ENDS.get(code) ?? `the server closed the connection with the code ${code}`);
      reject(new RiglineError('connect', why, { code }));
      transport.onEnd(why, code);
      ended();
    };
  });
}

/** What is used of a `SerialPort` of Web Serial, which not every TypeScript knows. */
export interface Port {
  readonly readable: ReadableStream<Uint8Array> | null;
  readonly writable: WritableStream<Uint8Array> | null;
  open(options: { baudRate: number; bufferSize?: number }): Promise<void>;
  close(): Promise<void>;
  setSignals(signals: { dataTerminalReady?: boolean }): Promise<void>;
  addEventListener(type: 'disconnect', listener: () => void): void;
  removeEventListener(type: 'disconnect', listener: () => void): void;
}

export interface WebSerialOptions {
  /** 115200. USB devices take any. */
  baudRate?: number;
}

/** The connection to a board on a serial port that the user has chosen. Closing it drops DTR, which ends the board's session. */
export async function webSerial(port: Port, { baudRate = 115200 }: WebSerialOptions = {}): Promise<Transport> {
  must('port.open', port?.open, 'function');
  must('baudRate', baudRate, 'number');
  try {
    await port.open({ baudRate, bufferSize: 65536 });
  } catch (error) {
    throw new RiglineError('connect', `the port cannot be opened: ${text(error)}; another program or tab may have it open`);
  }
  // Some adapters have no such line.
  await port.setSignals({ dataTerminalReady: true }).catch(() => {});
  const { readable, writable } = port;
  if (!readable || !writable) {
    await port.close().catch(() => {});
    throw new RiglineError('connect', 'the port cannot be read and written');
  }
  const reader = readable.getReader();
  const writer = writable.getWriter();
  let why = 'the port was closed';
  let waiting = 0;
  const unplugged = () => (why = 'the device was unplugged');
  port.addEventListener('disconnect', unplugged);

  const transport: Transport = {
    onData: () => {},
    onEnd: () => {},
    send: (line) => {
      must('text', line, 'string');
      const bytes = encoder.encode(line);
      waiting += bytes.length;
      writer.write(bytes).then(
        () => (waiting -= bytes.length),
        (error: unknown) => {
          why = `nothing can be sent: ${text(error)}`;
          void reader.cancel().catch(() => {});
        },
      );
    },
    waiting: () => waiting,
    close: async () => {
      await reader.cancel().catch(() => {});
      await gone;
    },
  };
  const read = async () => {
    for (;;) {
      try {
        const { value, done } = await reader.read();
        if (done) return;
        transport.onData(value);
      } catch (error) {
        // The event that says so comes after the error.
        await new Promise((resolve) => setTimeout(resolve, 100));
        if (why === 'the port was closed') why = `the port cannot be read: ${text(error)}`;
        return;
      }
    }
  };
  const gone = read().then(async () => {
    reader.releaseLock();
    await writer.abort().catch(() => {});
    writer.releaseLock();
    await port.setSignals({ dataTerminalReady: false }).catch(() => {});
    await port.close().catch(() => {});
    port.removeEventListener('disconnect', unplugged);
    transport.onEnd(why);
  });
  // What the board may have kept of an earlier line ends here.
  transport.send('\n');
  return transport;
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
