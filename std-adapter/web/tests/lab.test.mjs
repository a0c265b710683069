// The page of a rig of the lab: who has it, until when, and the page's own place in the queue.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { RIGLINE, launch, open, picture, run, scratch, sound, start, undo, until } from './harness.mjs';

const browser = await launch();
const folder = scratch();
writeFileSync(join(folder, 'rigs.toml'), "[[rig]]\nname = 'r1'\ntarget = 'sim'\n");
const env = { ...process.env, RIGLINE_LAB_DIR: folder };
const status = async () => JSON.parse((await run(['lab', 'status', '--json'], '', { env })).stdout);
// The agent would live on for ten minutes.
undo(async () => process.kill((await status()).agent.pid));

/** A server of the rig: a client of the lab, whatever pages it has. */
async function serve() {
  const server = await start(RIGLINE, ['web', 'rig:r1', '--wait', '10m'], { env });
  return /https?:\/\/\S+/.exec(await server.next())[0];
}

const line = (page) => page.getByRole('group', { name: 'Who has the rig' });
async function says(page, pattern) {
  let text = '';
  const isSo = async () => pattern.test((text = (await line(page).allTextContents()).join(' ')));
  await until(isSo, `the line says ${pattern}`).catch((error) => assert.fail(`${error.message}; it says: ${text}`));
}

test('two_pages_show_who_has_the_rig_until_when_and_the_place_of_the_one_that_waits', async (t) => {
  const first = await open(t, browser, await serve());
  await first.getByRole('heading', { name: /^rig 0/ }).waitFor();
  await says(first, /r1: yours, until .*\d\d/);
  const second = await open(t, browser, await serve());
  await says(second, /r1: .+ \(process \d+, web\) has it, until .*\d\d.*This page waits: its place in the queue is 1\./);
  await says(first, /1 other one waits for it\./);
  // Somebody on the command line is behind it.
  const third = start(RIGLINE, ['lock', 'rig:r1', '--wait', '5m', '--', 'true'], { env });
  await says(first, /2 others wait for it\./);
  await says(second, /its place in the queue is 1\./);
  await picture(second, 'lab-waits');
  // The first one goes, and the second gets the rig.
  await first.context().close();
  await second.getByRole('heading', { name: /^rig 0/ }).waitFor();
  await says(second, /r1: yours, until .*1 other one waits for it\./);
  await picture(second, 'lab-yours');
  sound(second);
  await second.context().close();
  assert.equal(await (await third).ended, 0);
});

test('the_page_of_a_rig_in_quarantine_says_why', async (t) => {
  const { code, stderr } = await run(['lab', 'quarantine', 'r1', '--reason', 'the probe is bent'], '', { env });
  assert.equal(code, 0, stderr);
  const page = await open(t, browser, await serve());
  await says(page, /r1: in quarantine: the probe is bent\./);
});
