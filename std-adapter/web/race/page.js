// Makes a transcript of 20 MB, has the worker decode it, and looks at how long the page stands still meanwhile.

const lines = [];
let size = 0;
for (let id = 1; size < 20e6; id += 1) {
  const context = { workdir: '/home/user/evals/rails', phase: 'verify', timeout: '5s' };
  const params = { operation: 'measure', args: { channel: '3V3', samples: 4 }, context };
  const log = { level: 'info', message: 'settling for 5 ms', data: { channel: '3V3', n: id } };
  const result = { success: true, message: '3.301 V at 3V3', outputs: { volts: '3.301', millivolts: '3301', unit: 'V' } };
  for (const message of [
    { jsonrpc: '2.0', id, method: 'execute', params },
    { jsonrpc: '2.0', method: 'log', params: log },
    { jsonrpc: '2.0', id, result },
  ]) {
    const line = JSON.stringify(message);
    lines.push(line);
    size += line.length + 1;
  }
}
const bytes = new TextEncoder().encode(`${lines.join('\n')}\n`);
const tell = (result) => fetch('/result', { method: 'POST', body: JSON.stringify(result) });

const worker = new Worker('/race/worker.js', { type: 'module' });
let longest = 0;
let last = performance.now();
worker.onerror = ({ message }) => tell({ error: message });
worker.onmessage = ({ data: times }) => tell({ bytes: bytes.length, lines: lines.length, times, longest, browser: navigator.userAgent });
setTimeout(() => {
  last = performance.now();
  setInterval(() => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  }, 1);
  worker.postMessage({ bytes, lines: lines.length, rounds: 9 });
}, 200);
