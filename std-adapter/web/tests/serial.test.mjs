// Web Serial, really: Chromium opens a port, behind which the image that is flashed runs in the emulator. The port is a pty, which
// umockdev shows the browser as a USB device. .ci/web-tests.sh installs what this needs, and sets RIGLINE_WEB_SERIAL.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createServer } from 'node:net';
import { join } from 'node:path';
import test from 'node:test';
import { HERE, ROOT, launch, open, picture, scratch, sound, start, until, web } from './harness.mjs';

if (!process.env.RIGLINE_WEB_SERIAL) {
  console.log('skipped: Web Serial. .ci/web-tests.sh runs it where umockdev and the policy can be installed');
  process.exit(0);
}
/** A port of those for which the policy lets pages open serial ports without asking a person. */
const listen = await freePort(process.env.RIGLINE_WEB_SERIAL.split(',').map(Number));

const emulator = await start(join(ROOT, 'target/debug/emulator'), ['rig', '--quiet']);
const pty = /USB\s+(\S+)/.exec(await emulator.next())[1];
await emulator.next();
const controlPort = Number(/127\.0\.0\.1:(\d+)/.exec(await emulator.next())[1]);

const testbed = await start('umockdev-wrapper', ['/usr/bin/python3', join(HERE, 'testbed.py'), '16c0', '27dd', '454D554C41544544'], { env: { ...process.env, LD_PRELOAD: '' } });
const root = await testbed.next();
const device = async (command) => {
  testbed.child.stdin.write(`${command}\n`);
  assert.equal(await testbed.next(), 'done', command);
};
await device(`tty ${pty}`);

const lines = join(scratch(), 'modem_lines.so');
execFileSync('cc', ['-shared', '-fPIC', '-o', lines, join(HERE, 'modem_lines.c')]);
const browser = await launch({ UMOCKDEV_DIR: root, LD_PRELOAD: `${lines} libumockdev-preload.so.0` });
const server = await web('--listen', `127.0.0.1:${listen}`);

async function freePort(ports) {
  for (const port of ports) {
    const probe = createServer();
    const isFree = await new Promise((done) => probe.once('error', () => done(false)).listen(port, '127.0.0.1', () => done(true)));
    await new Promise((done) => probe.close(done));
    if (isFree) return port;
  }
  throw new Error(`all ports of ${ports} are in use`);
}

async function connected(page) {
  await page.getByRole('button', { name: 'Connect to USB 16c0:27dd' }).click();
  await page.getByRole('heading', { name: /^rig 0/ }).waitFor();
}

async function measure(page, channel) {
  await page.getByRole('button', { name: 'measure', exact: true }).click();
  await page.getByLabel('channel').fill(channel);
  await page.getByRole('button', { name: 'Run measure' }).click();
  await page.getByRole('table', { name: 'Outputs' }).getByRole('row').nth(1).waitFor();
}

test('j_02_web_serial_reaches_the_emulated_board_without_a_server', async () => {
  const page = await open(browser, server.url);
  await connected(page);
  await page.getByText('Connected by Web Serial to USB 16c0:27dd').waitFor();
  await measure(page, 'TEMP');
  const value = await page.getByRole('table', { name: 'Outputs' }).getByRole('row').nth(1).textContent();
  assert.match(value, /2[67]\.\d/, 'the emulated chip has 27 degrees');
  await picture(page, 'serial-1280-light');
  await page.getByRole('button', { name: 'Disconnect', exact: true }).click();
  await page.getByText('Connect to a rig').waitFor();
  sound(page);
});
