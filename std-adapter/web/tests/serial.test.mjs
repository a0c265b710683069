// Web Serial, really: Chromium opens a port, behind which the image that is flashed runs in the emulator. The port is a pty, which
// umockdev shows the browser as a USB device. .ci/web-tests.sh installs what this needs, and sets RIGLINE_WEB_SERIAL.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { connect, createServer } from 'node:net';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { HERE, RIGLINE, ROOT, launch, open, picture, scratch, sound, start, until, web } from './harness.mjs';

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

/** A command for the emulator's control port. */
function control(command) {
  return new Promise((done, fail) => {
    const socket = connect(controlPort, '127.0.0.1', () => socket.write(`${JSON.stringify(command)}\n`));
    let text = '';
    socket.once('error', fail);
    socket.on('data', (data) => {
      text += data;
      if (!text.includes('\n')) return;
      socket.destroy();
      const answer = JSON.parse(text);
      answer.ok ? done(answer) : fail(new Error(answer.error));
    });
  });
}

/** The terminal is hung up when the cable is pulled; the next one may have another number. */
async function plugged() {
  await until(() => existsSync(terminal()), 'the terminal is there again');
  await device(`tty ${terminal()}`);
}

function terminal() {
  return emulator.stderr().match(/is now (\S+)/g)?.at(-1).split(' ').at(-1) ?? pty;
}

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
  await page.getByLabel('channel').selectOption(channel);
  await page.getByRole('button', { name: 'Run measure' }).click();
  await page.getByRole('table', { name: 'Outputs' }).getByRole('row').nth(1).waitFor();
}

test('web_serial_reaches_the_emulated_board_without_a_server', async (t) => {
  const page = await open(t, browser, server.url);
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

test('unplug_says_so_and_the_returning_board_is_recognised_by_its_usb_ids', async (t) => {
  const page = await open(t, browser, server.url);
  await connected(page);
  // A call that is out when the cable is pulled has an end, too.
  await page.getByRole('button', { name: 'wait-for', exact: true }).click();
  await page.getByLabel('channel').selectOption('3V3');
  await page.getByLabel('min').fill('3');
  await page.getByLabel('max').fill('4');
  await page.getByRole('button', { name: 'Run wait-for' }).click();
  await page.getByText('running').first().waitFor();
  await control({ cmd: 'unplug' });
  await device('remove');
  await page.getByRole('heading', { name: 'The board was unplugged' }).waitFor();
  await page.getByText('Plug USB 16c0:27dd in again').waitFor();
  await page.getByText('There is no answer: the board was unplugged.').first().waitFor();
  await until(() => page.getByRole('button', { name: 'Run wait-for' }).isDisabled(), 'the button is disabled');
  await picture(page, 'unplugged-1280-light');
  // It is away: that is said, and nothing breaks.
  await page.getByRole('button', { name: 'Reconnect' }).click();
  await page.getByText('is not plugged in').first().waitFor({ state: 'attached' });

  await control({ cmd: 'plug' });
  await plugged();
  await device('add');
  await page.getByText('USB 16c0:27dd is plugged in again.').waitFor();
  await page.getByRole('button', { name: 'Reconnect' }).click();
  await page.getByText('Connected by Web Serial to USB 16c0:27dd').waitFor();
  await measure(page, 'TEMP');
  // The rig's outputs went off with the session.
  await page.getByRole('button', { name: 'Disconnect', exact: true }).click();
  await page.getByText('Connect to a rig').waitFor();
  sound(page);
});

test('a_port_that_cannot_be_opened_is_said_and_can_be_tried_again', async (t) => {
  const page = await open(t, browser, server.url);
  await device(`tty ${scratch()}/nothing`);
  await page.getByRole('button', { name: 'Connect to USB 16c0:27dd' }).click();
  await page.getByText(/^the port cannot be opened: .*another program or tab may have it open/).waitFor();
  await picture(page, 'held-1280-light');
  await device(`tty ${terminal()}`);
  await page.getByRole('button', { name: 'Reconnect' }).click();
  await page.getByText('Connected by Web Serial').waitFor();
  await page.getByRole('button', { name: 'Disconnect', exact: true }).click();
  await page.getByText('Connect to a rig').waitFor();
  sound(page);
});

test('cancel_over_web_serial_brings_about_the_safe_state', async (t) => {
  const page = await open(t, browser, server.url);
  await connected(page);
  await page.getByRole('button', { name: 'power', exact: true }).click();
  await page.getByLabel('rail').selectOption('3V3');
  await page.getByRole('combobox', { name: /^on / }).selectOption('true');
  await page.getByRole('button', { name: 'Run power' }).click();
  await until(async () => (await control({ cmd: 'gpio', pin: 2 })).high === true, 'the rail is on');
  await page.getByRole('button', { name: 'wait-for', exact: true }).click();
  await page.getByLabel('channel').selectOption('AUX');
  await page.getByLabel('min').fill('3');
  await page.getByLabel('max').fill('4');
  await page.getByLabel('within_ms').fill('60000');
  await page.getByLabel('Timeout').fill('60');
  await page.getByRole('button', { name: 'Run wait-for' }).click();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByText('The call was cancelled, and its session with the rig was ended.').first().waitFor();
  await until(async () => (await control({ cmd: 'gpio', pin: 2 })).high === false, 'the rail is off');
  // A new session has begun.
  await page.getByText('Connected by Web Serial').waitFor();
  await measure(page, 'TEMP');
  await page.getByRole('button', { name: 'Disconnect', exact: true }).click();
  await page.getByText('Connect to a rig').waitFor();
  sound(page);
});

test('who_holds_the_port_is_said_and_reconnecting_works_when_it_is_free', async (t) => {
  const holder = await start(RIGLINE, ['monitor', `serial:${terminal()}`]);
  holder.child.stdin.write('{"op":"health"}\n');
  await holder.next();
  const held = await web(`serial:${terminal()}`);
  const page = await open(t, browser, held.url);
  await page.getByRole('heading', { name: 'There is no connection' }).waitFor();
  const connection = page.getByRole('region', { name: 'Connection' });
  await connection.getByText(new RegExp(`\\b${holder.child.pid}\\b`)).first().waitFor();
  await picture(page, 'held-by-1280-light');
  holder.child.stdin.end();
  holder.child.kill();
  await holder.ended;
  await page.getByRole('button', { name: 'Reconnect' }).click();
  await page.getByText(/Connected through rigline web to serial:/).waitFor();
  await measure(page, 'TEMP');
  // The board is unplugged from the server's machine: the server says so, and the page passes it on.
  await control({ cmd: 'unplug' });
  await page.getByRole('heading', { name: 'There is no connection' }).waitFor();
  await control({ cmd: 'plug' });
  await plugged();
  sound(page);
});
