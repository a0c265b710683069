// What the page keeps over a reload and while the server is away, who has the turn, and what is only said when it is known.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createReadStream, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTcpServer } from 'node:net';
import { extname, join } from 'node:path';
import test from 'node:test';
import { HERE, PATIENCE, chosen, launch, open, picture, scratch, shows, sound, until, web } from './harness.mjs';

const browser = await launch();
const server = await web('sim');
const odd = `exec:${process.execPath} ${join(HERE, 'extension.mjs')}`;
/** What the browser itself says of a server that is away. */
const AWAY = /WebSocket connection to|ERR_CONNECTION_REFUSED|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET|ERR_SOCKET_NOT_CONNECTED/;

async function choose(page, operation) {
  await page.getByRole('navigation', { name: 'Operations' }).getByRole('button', { name: operation, exact: true }).click();
}

const connected = (page) => page.getByText('connected', { exact: true }).waitFor();
const result = (page) => page.locator('.form').getByRole('group', { name: /^Result of call/ });
const hash = (page) => page.evaluate(() => Object.fromEntries(new URLSearchParams(location.hash.slice(1))));

/** A call that takes a minute if nobody ends it. */
async function runLong(page) {
  await choose(page, 'wait-for');
  await page.getByLabel('channel').selectOption('AUX');
  for (const [name, value] of [['min', '3'], ['max', '4'], ['within_ms', '60000'], ['Timeout', '90']]) await page.getByLabel(name).fill(value);
  await page.getByRole('button', { name: 'Run wait-for' }).click();
  await result(page).getByText('running').waitFor();
}

async function freePort() {
  const listener = createTcpServer().listen(0, '127.0.0.1');
  await new Promise((done) => listener.once('listening', done));
  const { port } = listener.address();
  await new Promise((done) => listener.close(done));
  return port;
}

test('a call that waits for another client says for whom, and its time is its own', async (t) => {
  const first = await open(t, browser, server.url);
  await connected(first);
  await first.getByText(/^Your name for others/).click();
  await first.getByLabel('Name', { exact: true }).fill('Ada <b>');
  await first.reload();
  await connected(first);
  const second = await open(t, browser, server.url);
  await connected(second);
  await second.getByRole('group', { name: 'Who is connected' }).getByText('1 other client: Ada <b>.').waitFor();
  await runLong(first);
  await second.getByText('Ada <b> runs wait-for.').waitFor();
  await choose(second, 'identify');
  await second.getByRole('button', { name: 'Run identify' }).click();
  await result(second).getByText('waiting for Ada <b>').waitFor();
  await until(async () => /^identify waits - rig/.test(await second.title()), 'the title');
  await picture(second, 'waiting-1280-light');
  await new Promise((done) => setTimeout(done, 1500));
  await first.getByRole('button', { name: 'Cancel', exact: true }).click();
  await result(second).getByText('succeeded').waitFor();
  const said = await result(second).getByRole('heading').textContent();
  const [, own, ownUnit, waited] = /after ([\d.]+) (ms|s), having waited ([\d.]+) s for another client/.exec(said) ?? [];
  assert.ok(Number(waited) >= 1.5, said);
  assert.ok(Number(own) * (ownUnit === 's' ? 1000 : 1) < 1000, said);
  sound(first);
  sound(second);
});

test('the time limit of a call counts from its arrival: one whose time is up before its turn says what runs, and for whom', async (t) => {
  const [first, second] = [await open(t, browser, server.url), await open(t, browser, server.url)];
  await connected(first);
  await connected(second);
  await first.getByText(/^Your name for others/).click();
  await first.getByLabel('Name', { exact: true }).fill('Ada');
  await first.reload();
  await connected(first);
  await runLong(first);
  await choose(second, 'identify');
  await second.getByLabel('Timeout').fill('0.5');
  await second.getByRole('button', { name: 'Run identify' }).click();
  await result(second).getByText('refused').waitFor();
  await result(second).getByText(/^the time limit passed after 0\.\d s in the queue: wait-for has run for [\d.]+ s, for Ada$/).waitFor();
  // The other client's call has gone on, and this one does not come after it.
  await result(first).getByText('running').waitFor();
  // A call with time enough waits as long as it must.
  await second.getByLabel('Timeout').fill('60');
  await second.getByRole('button', { name: 'Run identify' }).click();
  await result(second).getByText('waiting for Ada').waitFor();
  await new Promise((done) => setTimeout(done, 4000));
  await result(second).getByText('waiting for Ada').waitFor();
  await first.getByRole('button', { name: 'Cancel', exact: true }).click();
  await result(second).getByText('succeeded').waitFor();
  await shows(() => second.getByRole('region', { name: 'History' }).getByText('succeeded').count(), 1);
});

// The page said that the rig had switched its outputs off while the server did not answer.
test('nothing is said about outputs while the server does not answer', async (t) => {
  const own = await web('sim', '--port', String(await freePort()), '--keep-token');
  const page = await open(t, browser, own.url);
  await connected(page);
  await runLong(page);
  own.child.kill('SIGSTOP');
  try {
    await page.getByRole('button', { name: 'Cancel', exact: true }).click();
    await result(page).getByText('cancelled', { exact: true }).waitFor();
    const text = await page.evaluate(() => document.body.innerText);
    assert.doesNotMatch(text, /(?:switched|are|were|has switched its outputs) off/i);
    await result(page).getByText('What the rig has done with its outputs is not known.').waitFor();
  } finally {
    own.child.kill('SIGCONT');
  }
  await result(page).getByText('A new session has begun. Outputs may have changed: read them.').waitFor({ timeout: 2 * PATIENCE });
  // Neither does leaving the rig claim anything.
  await page.getByRole('button', { name: 'Disconnect', exact: true }).click();
  await until(async () => /whether it has done so is not known here/.test(await page.locator('.notice').textContent()), 'the notice');
});

test('a server that is gone is named, and the page comes back by itself when it does', async (t) => {
  const port = String(await freePort());
  const state = { env: { ...process.env, XDG_STATE_HOME: scratch() } };
  const begin = () => webIn(state, 'sim', '--port', port, '--keep-token');
  const first = await begin();
  const page = await open(t, browser, first.url);
  await connected(page);
  await choose(page, 'measure');
  await page.getByLabel('channel').selectOption('TEMP');
  first.child.kill('SIGKILL');
  await page.getByRole('heading', { name: `The server at 127.0.0.1:${port} does not answer` }).waitFor();
  await until(async () => /no connection - rig/.test(await page.title()), 'the title');
  assert.match(await page.locator('link[rel="icon"]').getAttribute('href'), /icon-ended/);
  await picture(page, 'server-gone-1280-light');
  const second = await begin();
  assert.equal(second.url, first.url);
  await connected(page);
  // The form is as it was.
  await shows(() => chosen(page.getByLabel('channel')), 'TEMP');
  await page.getByRole('button', { name: 'Run measure' }).click();
  await result(page).getByText('TEMP is at').waitFor();
  // An orderly end of the server is no different.
  second.child.kill('SIGTERM');
  await page.getByRole('heading', { name: /does not answer/ }).waitFor();
  // A server with another token says so.
  await webIn(state, 'sim', '--port', port);
  await page.getByRole('alert').getByText(/another token|token of this server is required/).waitFor();
  sound(page, AWAY, /401/);
});

async function webIn(options, ...args) {
  const { start, RIGLINE } = await import('./harness.mjs');
  const begun = await start(RIGLINE, ['web', ...args], options);
  const url = /https?:\/\/\S+/.exec(await begun.next())[0];
  return { ...begun, url };
}

test('the address without its token says what is missing, and where it stands', async (t) => {
  const url = new URL(server.url);
  const token = url.hash;
  url.hash = '';
  const page = await open(t, browser, url.href);
  await page.getByRole('alert').getByText('This address lacks the token of its server').waitFor();
  await page.getByText('it stands in the terminal or in the log of the service that started it').waitFor();
  await picture(page, 'no-token-1280-light');
  await page.getByLabel('The token, or the whole address').fill(server.url);
  await page.getByRole('button', { name: 'Use this token' }).click();
  await connected(page);
  assert.equal((await hash(page)).token, token.slice('#token='.length));
  sound(page);
});

test('each operation with its arguments has an address, and Back and Forward lead to them', async (t) => {
  const page = await open(t, browser, server.url);
  await connected(page);
  await choose(page, 'measure');
  await page.getByLabel('channel').selectOption('3V3');
  await until(async () => (await hash(page)).args === '{"channel":"3V3"}', 'the arguments in the address');
  await choose(page, 'power');
  await page.getByLabel('rail').selectOption('5V0');
  await page.getByRole('combobox', { name: /^on / }).selectOption('true');
  await until(async () => (await hash(page)).args === '{"rail":"5V0","on":true}', 'the arguments in the address');
  await page.getByRole('tab', { name: 'Evals' }).click();
  await page.goBack();
  await page.getByRole('heading', { name: 'power', exact: true }).waitFor();
  await page.goBack();
  await page.getByRole('heading', { name: 'measure', exact: true }).waitFor();
  await shows(() => chosen(page.getByLabel('channel')), '3V3');
  await page.goForward();
  await shows(() => chosen(page.getByLabel('rail')), '5V0');
  // The session has gone on.
  assert.equal(await page.getByText('connected', { exact: true }).count(), 1);
  const address = page.url();
  const other = await open(t, browser, address);
  await other.getByRole('heading', { name: 'power', exact: true }).waitFor();
  await shows(() => chosen(other.getByLabel('rail')), '5V0');
  await shows(() => other.getByRole('combobox', { name: /^on / }).inputValue(), 'true');
  // Opening it has run nothing.
  await new Promise((done) => setTimeout(done, 500));
  assert.equal(await other.getByRole('region', { name: 'History' }).count(), 0);
  sound(page);
  sound(other);
});

test('an address with arguments that cannot be used says so, and runs nothing', async (t) => {
  const at = (more) => `${server.url}&${new URLSearchParams(more)}`;
  for (const [more, why] of [
    [{ op: 'measure', args: '{bad' }, /The arguments in the address cannot be used/],
    [{ op: 'measure', args: '[1]' }, /they are no JSON object/],
    [{ op: 'measure', args: '{"channel":{"deep":1}}' }, /do not fit the operation/],
    [{ op: 'measure', args: `{"channel":"${'x'.repeat(5000)}"}` }, /longer than 4000 characters/],
    [{ op: 'measure', args: '{"channel":"3V3","volts":5}' }, /which|does not have: volts/],
    [{ op: '<script>', args: '{}' }, /which this rig does not have/],
  ]) {
    const page = await open(t, browser, at(more));
    await connected(page);
    await until(async () => why.test(await page.locator('.notice').textContent()) || why.test(await page.evaluate(() => document.body.innerText)), String(why));
    assert.equal(await page.getByRole('region', { name: 'History' }).count(), 0);
    sound(page);
    await page.context().close();
  }
});

test('form values, sources, the history with outputs and logs, and the chosen rig are there after a reload', async (t) => {
  const choosing = await web();
  const page = await open(t, browser, choosing.url);
  await page.getByRole('button', { name: 'Connect to sim' }).click();
  await connected(page);
  await choose(page, 'self-test');
  await page.getByRole('button', { name: 'Run self-test' }).click();
  await result(page).getByText('succeeded').waitFor();
  await choose(page, 'measure');
  await page.getByLabel('channel').selectOption('3V3');
  await page.getByLabel('samples').fill('not yet a number');
  await page.getByLabel('Timeout').fill('12');
  await page.getByRole('tab', { name: 'Plots' }).click();
  await page.getByRole('combobox', { name: /^channel/ }).selectOption('TEMP');
  await page.getByRole('button', { name: 'Add to the plot' }).click();
  await page.getByLabel('Rate').selectOption({ label: '5 a second' });
  await page.reload();
  await connected(page);
  await page.getByText('measure channel=TEMP').first().waitFor();
  await shows(() => page.getByLabel('Rate').inputValue(), '0.2');
  await page.getByRole('tab', { name: 'Live' }).click();
  await page.getByRole('heading', { name: 'measure', exact: true }).waitFor();
  await shows(() => chosen(page.getByLabel('channel')), '3V3');
  await shows(() => page.getByLabel('samples').inputValue(), 'not yet a number');
  await shows(() => page.getByLabel('Timeout').inputValue(), '12');
  const history = page.getByRole('region', { name: 'History' });
  await history.getByRole('button', { name: '1. self-test' }).click();
  const opened = history.getByRole('group', { name: 'Result of call 1' });
  await opened.getByRole('rowheader', { name: 'passed' }).waitFor();
  await opened.getByText('3V3 off: passed').waitFor();
  await picture(page, 'history-open-1280-light');
  // A new call does not get an old number.
  await choose(page, 'identify');
  await page.getByRole('button', { name: 'Run identify' }).click();
  await history.getByRole('button', { name: '2. identify' }).waitFor();
  sound(page);
});

test('a call that was out when the page was loaded anew has no answer, and no Cancel', async (t) => {
  const page = await open(t, browser, server.url);
  await connected(page);
  await runLong(page);
  await page.reload();
  await connected(page);
  await page.getByRole('region', { name: 'History' }).getByText('The page was loaded anew while the call was out').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Cancel', exact: true }).count(), 0);
});

/** An eval that takes some seconds. */
function slowEval() {
  const folder = scratch();
  mkdirSync(join(folder, 'tasks'));
  writeFileSync(join(folder, 'eval.yaml'), 'name: slow\nconfig: { target: sim, timeout_seconds: 90 }\nmetrics: [{ name: m, weight: 1.0, threshold: 1.0 }]\ntasks: ["tasks/*.yaml"]\n');
  const wait = (ms) => `steps:\n  - { id: read, phase: verify, operation: measure, args: { channel: "3V3" } }\n  - { id: wait, phase: verify, operation: wait-for, args: { channel: AUX, min: -5, max: 5, within_ms: 100 } }\n${ms > 0 ? `  - { id: long, phase: verify, operation: wait-for, args: { channel: AUX, min: 90, max: 91, within_ms: ${ms} }, timeout: 60s }\n` : ''}graders:\n  - { type: output_range, step: read, output: volts, min: -1, max: 1 }\n`;
  writeFileSync(join(folder, 'tasks/a.yaml'), `id: a\nname: Quick\n${wait(0)}`);
  writeFileSync(join(folder, 'tasks/b.yaml'), `id: b\nname: Long\n${wait(50_000)}`);
  return folder;
}

test('a run that goes on is found again after a reload, with its Cancel, and opens with its outputs and logs', async (t) => {
  const evals = await web('sim', '--evals', slowEval(), '--runs', scratch());
  const page = await open(t, browser, evals.url);
  await page.getByRole('tab', { name: 'Evals' }).click();
  await page.getByRole('button', { name: 'Run slow' }).click();
  await page.locator('[data-task="a"][data-status="passed"]').waitFor();
  await page.reload();
  await page.locator('[data-task="a"][data-status="passed"]').waitFor();
  await page.locator('[data-task="b"][data-status="running"]').waitFor();
  await page.getByLabel('Logs of the run').getByText('Running task: b').waitFor();
  await picture(page, 'run-found-again-1280-light');
  await page.getByRole('button', { name: 'Cancel the run' }).click();
  await page.getByRole('region', { name: /slow/ }).getByText('cancelled').first().waitFor();
  assert.equal(await page.getByRole('button', { name: 'Cancel the run' }).count(), 0);
  const runs = page.getByRole('region', { name: 'Earlier runs' });
  await runs.getByRole('button', { name: 'slow' }).click();
  const detail = runs.getByRole('group', { name: /^Run of slow/ });
  await detail.getByText('a, trial 1').click();
  await detail.getByText(/volts = -?0\.\d+/).first().waitFor();
  await detail.getByText('Running task: a').waitFor();
  await picture(page, 'run-open-1280-light');
  sound(page);
});

test('everything off is in sight on every page, and says what it did', async (t) => {
  const own = await web('sim');
  const page = await open(t, browser, own.url);
  const other = await open(t, browser, own.url);
  await connected(page);
  await connected(other);
  await choose(page, 'power');
  await page.getByLabel('rail').selectOption('3V3');
  await page.getByRole('combobox', { name: /^on / }).selectOption('true');
  await page.getByRole('button', { name: 'Run power' }).click();
  await result(page).getByText('succeeded').waitFor();
  await runLong(other);
  for (const tab of ['Plots', 'Transcript', 'Evals']) {
    await page.getByRole('tab', { name: tab }).click();
    await page.getByRole('button', { name: 'Everything off' }).waitFor();
  }
  await page.getByRole('button', { name: 'Everything off' }).click();
  await page.getByText('All calls were cancelled, and the session with the rig was ended, at which the rig runs its safe state. It answers again.').waitFor();
  await picture(page, 'everything-off-1280-light');
  await result(other).getByText('switched everything off').waitFor();
  await page.getByRole('tab', { name: 'Live' }).click();
  await choose(page, 'measure');
  await page.getByLabel('channel').selectOption('3V3');
  await page.getByRole('button', { name: 'Run measure' }).click();
  await result(page).getByText(/3V3 is at -?0\.0/).waitFor();
  // While the server does not answer, nothing is claimed.
  own.child.kill('SIGKILL');
  await page.getByRole('heading', { name: /does not answer/ }).waitFor();
  await page.getByRole('button', { name: 'Everything off' }).click();
  await page.getByText('It is not known whether anything is off').waitFor();
  sound(page, AWAY);
});

test('an extension without a safe state has no such button, unless it has an operation for it', async (t) => {
  const plain = await open(t, browser, (await web(odd)).url);
  await connected(plain);
  assert.equal(await plain.getByRole('button', { name: 'Everything off' }).count(), 0);
  const script = join(scratch(), 'off.mjs');
  writeFileSync(
    script,
    `import { createInterface } from 'node:readline';
const send = (value) => console.log(JSON.stringify({ jsonrpc: '2.0', ...value }));
for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize') send({ id, result: { name: 'switch', version: '1.0.0', protocolVersion: '0.0.1', operations: { 'all-off': { params: { type: 'object' } }, hang: { params: { type: 'object' } } } } });
  else if (method === 'execute' && params.operation === 'all-off') send({ id, result: { success: true, message: 'three relays are open' } });
  else if (method !== 'execute') send({ id, result: {} });
}`,
  );
  const page = await open(t, browser, (await web(`exec:${process.execPath} ${script}`)).url);
  await connected(page);
  // A call that runs does not hold it up.
  await choose(page, 'hang');
  await page.getByRole('button', { name: 'Run hang' }).click();
  await result(page).getByText('running').waitFor();
  await page.getByRole('button', { name: 'Everything off' }).click();
  await page.getByText('all-off succeeded: three relays are open').waitFor();
});

test('the page as a folder works from any web server, with a policy of its own', async (t) => {
  const folder = join(scratch(), 'page');
  execFileSync('bash', [join(HERE, '../build.sh'), '--folder', folder], { stdio: 'pipe' });
  assert.ok(existsSync(`${folder}.zip`));
  const kinds = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/octet-stream', '.svg': 'image/svg+xml' };
  const asked = [];
  // A server that knows nothing of the page, below a path.
  const files = createServer((request, response) => {
    const path = new URL(request.url, 'http://localhost').pathname.replace(/^\/lab\//, '');
    asked.push(path);
    const file = join(folder, path === '' ? 'index.html' : path);
    if (!existsSync(file)) return void response.writeHead(404).end();
    response.setHeader('content-type', kinds[extname(file)] ?? 'text/plain');
    createReadStream(file).pipe(response);
  }).listen(0, '127.0.0.1');
  t.after(() => files.close());
  await new Promise((done) => files.once('listening', done));
  const page = await open(t, browser, `http://127.0.0.1:${files.address().port}/lab/`);
  await page.getByRole('button', { name: 'Choose a port' }).waitFor();
  // It asks for its own files only.
  assert.deepEqual(asked.filter((path) => !existsSync(join(folder, path === '' ? 'index.html' : path))), []);
  assert.equal(await page.getByText('lacks the token').count(), 0);
  await page.getByRole('tab', { name: 'Transcript' }).click();
  await page.getByLabel('Or paste lines').fill('{"jsonrpc":"2.0","id":1,"method":"initialize"}\n{"jsonrpc":"2.0","id":1,"result":{}}\n');
  await page.getByRole('button', { name: 'Show the pasted lines' }).click();
  await page.locator('[data-done="true"]').waitFor();
  sound(page);
  // Its policy refuses what is not its own.
  const refused = await page.evaluate(() => new Promise((done) => {
    addEventListener('securitypolicyviolation', (event) => done(event.violatedDirective), { once: true });
    const script = document.createElement('script');
    script.textContent = 'globalThis.hacked = 1';
    document.body.append(script);
  }));
  assert.match(refused, /script-src/);
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
});
