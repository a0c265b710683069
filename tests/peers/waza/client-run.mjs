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
let rest = '';
waza.stdout.on('data', (data) => {
  const lines = (rest + data.toString()).split('\n');
  rest = lines.pop();
  lines.forEach(read);
});

function read(line) {
  const message = JSON.parse(line);
  console.log(message.method ?? message.result.status);
  if (message.method === 'eval.progress') {
    // Update progress bar
  }
  if (message.method === 'eval.complete') {
    console.log(JSON.stringify(message.params));
    waza.stdin.end();
  }
}
