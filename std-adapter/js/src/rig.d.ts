import type { Session } from './index.js';

export { LINE_LIMIT, Rig, RiglineError, duration, must, ofError, ofLog, ofResult, toJson } from './index.js';

export declare const defaults: { session: ((base: number) => Pick<Session, 'request' | 'receive'>) | null };
