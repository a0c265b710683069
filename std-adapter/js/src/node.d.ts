import type { Options, Rig, Transport } from './index.js';

export * from './index.js';

/** Opens a session with `tcp:HOST:PORT`, `serial:PORT`, `sim`, or a program given as a list of words. */
export declare function connect(target: string | string[], options?: Options): Promise<Rig>;
export declare function overProgram(command: string[]): Promise<Transport>;
export declare function overTcp(host: string, port: number, patience?: number): Promise<Transport>;
