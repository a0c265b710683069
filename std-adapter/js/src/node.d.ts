import type { Options, Rig, Transport } from './index.js';

export * from './index.js';

/**
 * Opens a session with a target of the command `rigline`: `sim`, `serial:PORT`, `serial:auto`, `tcp:HOST:PORT`, `exec:PROGRAM ARGS`,
 * `replay:DIR` or the path of a program; or with a program and its arguments as a list.
 */
export declare function connect(target: string | string[], options?: Options): Promise<Rig>;
export declare function overProgram(command: string[]): Promise<Transport>;
export declare function overTcp(host: string, port: number, patience?: number): Promise<Transport>;
/** The words of a command line, as a POSIX shell reads them; null if a quote does not end. */
export declare function words(text: string): string[] | null;
