// See sleep.ts.
addEventListener('message', ({ data }: MessageEvent<{ id: number; time: number }>) => {
  setTimeout(() => postMessage(data.id), data.time);
});
