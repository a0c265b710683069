/** Timers of a worker: a browser slows down those of a page that is hidden. */
const worker = new Worker(new URL('./sleep.worker.ts', import.meta.url), { type: 'module' });
const waiting = new Map<number, () => void>();
let next = 1;

worker.onmessage = ({ data }: MessageEvent<number>) => {
  waiting.get(data)?.();
  waiting.delete(data);
};

/** Waits for so many milliseconds. */
export function sleep(time: number): Promise<void> {
  return new Promise((resolve) => {
    const id = next++;
    waiting.set(id, resolve);
    worker.postMessage({ id, time: Math.max(0, time) });
  });
}
