import { spawn } from 'child_process';

const waza = spawn('waza', ['jsonrpc']);

// Send request
const request = {
  jsonrpc: '2.0',
  id: 1,
  method: 'eval.run',
  params: { path: '/path/to/eval.yaml' }
};
waza.stdin.write(JSON.stringify(request) + '\n');

// Read responses
waza.stdout.on('data', (data) => {
  const message = JSON.parse(data.toString());
  if (message.method === 'eval.progress') {
    // Update progress bar
  }
});
