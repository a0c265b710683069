// The page "Evals".
import assert from 'node:assert/strict';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { launch, open, picture, ROOT, scratch, sound, until, web } from './harness.mjs';

const browser = await launch();
const EVALS = join(ROOT, 'firmware-example/evals');

async function evals(t, server) {
  const page = await open(t, browser, `${server.url}&view=evals`);
  await page.getByRole('heading', { name: 'Evals', exact: true }).waitFor();
  return page;
}

const statuses = (page) => page.locator('[data-task]').evaluateAll((tasks) => tasks.map((task) => `${task.dataset.task} ${task.dataset.status}`));

test('the verdicts and reasons of runs are those of the reports', async (t) => {
  const folder = scratch();
  const write = (name, text) => {
    mkdirSync(join(folder, name));
    writeFileSync(join(folder, name, 'eval.yaml'), `name: ${name}\nconfig: { executor: mock }\n${text}`);
  };
  write('tolerated', 'metrics: { pass_threshold: 0.5 }\ntasks: [{ id: a, prompt: p, mock: { fail: true } }, { id: b, prompt: p }]\n');
  write('other-rig', 'health: [{ operation: identify, mock: { serial: "1" }, expect: { serial: "2" } }]\ntasks: [{ id: a, prompt: p }]\n');
  write('red', 'tasks: [{ id: a, prompt: p, mock: { fail: true } }, { id: b, prompt: p }]\n');
  const server = await web('sim', '--evals', folder, '--runs', scratch());
  const page = await evals(t, server);
  const runs = page.getByRole('region', { name: 'Earlier runs' });
  for (const [name, verdict, words, why] of [
    ['tolerated', 'pass', 'passed', '1 task that did not pass is tolerated'],
    ['other-rig', 'rig_error', 'rig error', 'preflight'],
    ['red', 'fail', 'failed', '1 of 2 tasks passed, 100.0 % needed'],
  ]) {
    await page.getByRole('button', { name: `Run ${name}` }).click();
    const row = runs.getByRole('row').filter({ hasText: name });
    await row.getByText(why).waitFor();
    for (const badge of [row.locator('.badge'), page.locator('#run-title .badge')]) {
      await until(async () => (await badge.getAttribute('data-verdict')) === verdict, `${name}: ${verdict}`);
      assert.equal(await badge.textContent(), words, name);
    }
    await page.locator('section.run').getByText(why).waitFor();
  }
  sound(page);
});

test('evals_are_listed_and_run_and_tasks_go_green_or_red', async (t) => {
  const server = await web('sim', '--evals', EVALS, '--runs', scratch());
  const page = await evals(t, server);
  await page.getByRole('button', { name: 'Run rails' }).waitFor();
  for (const name of ['boot-and-button', 'built-to-fail']) assert.equal(await page.getByRole('button', { name: `Run ${name}` }).count(), 1);
  await page.getByText('There are none yet.').waitFor();
  // Every change of a task is seen.
  await page.evaluate(() => {
    globalThis.seen = new Set();
    new MutationObserver(() => {
      for (const task of document.querySelectorAll('[data-task]')) globalThis.seen.add(`${task.dataset.task} ${task.dataset.status}`);
    }).observe(document.getElementById('main'), { subtree: true, childList: true, attributes: true });
  });
  await page.getByRole('button', { name: 'Run rails' }).click();
  await page.getByText('3 of 3 tasks passed.').waitFor();
  assert.deepEqual(await statuses(page), ['rail-3v3 passed', 'rail-5v0 passed', 'rails-off passed']);
  const seen = await page.evaluate(() => [...globalThis.seen]);
  for (const status of ['rail-3v3 waiting', 'rail-3v3 running', 'rail-5v0 running']) assert.ok(seen.includes(status), `${status} in ${seen}`);
  const color = (name) => page.locator(`[data-task="${name}"] .badge`).evaluate((badge) => getComputedStyle(badge).color);
  const green = await color('rail-3v3');
  await page.getByRole('button', { name: 'Run built-to-fail' }).click();
  await page.getByText(/0 of \d+ tasks? passed\./).waitFor();
  const [failed] = await statuses(page);
  assert.match(failed, / failed$/);
  assert.notEqual(await color(failed.split(' ')[0]), green);
  // Both are among the earlier runs, the newest first.
  const runs = page.getByRole('region', { name: 'Earlier runs' });
  await until(async () => (await runs.getByRole('rowheader').allTextContents()).join() === 'built-to-fail,rails', 'both runs');
  await picture(page, 'evals-failed-1280-light');
  sound(page);
});

test('the_trend_of_a_measured_value_over_runs', async (t) => {
  const server = await web('sim', '--evals', EVALS, '--runs', scratch());
  const page = await evals(t, server);
  for (let run = 1; run <= 3; run += 1) {
    await page.getByRole('button', { name: 'Run rails' }).click();
    await page.getByText('3 of 3 tasks passed.').waitFor();
    await until(async () => (await page.getByRole('region', { name: 'Earlier runs' }).getByRole('rowheader').count()) === run, `run ${run}`);
  }
  const trend = page.getByRole('region', { name: 'Trend of a value' });
  await trend.getByRole('img', { name: /in 3 runs of rails/ }).waitFor();
  const values = await trend.getByRole('combobox', { name: 'Value' }).locator('option').allTextContents();
  assert.ok(values.some((value) => value.startsWith('rail-5v0: ')), String(values));
  await trend.getByRole('combobox', { name: 'Value' }).selectOption(values.find((value) => /^rail-5v0: .*volts/.test(value)));
  await trend.getByText('The values as a table').click();
  const cells = await trend.locator('td.number').allTextContents();
  assert.equal(cells.length, 3);
  for (const cell of cells) assert.ok(Math.abs(Number(cell) - 5) < 0.25, cell);
  await picture(page, 'evals-1280-light');
  // They are in the run store, for the next page too.
  const again = await evals(t, server);
  await until(async () => (await again.getByRole('region', { name: 'Earlier runs' }).getByRole('rowheader').count()) === 3, 'the runs');
  sound(page);
  sound(again);
});

test('a_run_is_cancelled', async (t) => {
  const folder = scratch();
  mkdirSync(join(folder, 'slow'));
  writeFileSync(join(folder, 'slow/eval.yaml'), 'name: slow\nconfig: { target: sim }\nmetrics: [{ name: m, weight: 1.0, threshold: 1.0 }]\ntasks: ["task.yaml"]\n');
  writeFileSync(join(folder, 'slow/task.yaml'), 'id: wait\nname: wait\nsteps:\n  - { id: wait, phase: verify, operation: wait-for, args: { channel: AUX, min: 3, max: 4, within_ms: 60000 }, timeout: 60s }\ngraders:\n  - { type: output_range, step: wait, output: volts, min: 3, max: 4 }\n');
  const server = await web('sim', '--evals', folder, '--runs', scratch());
  const page = await evals(t, server);
  await page.getByRole('button', { name: 'Run slow' }).click();
  await until(async () => (await statuses(page))[0] === 'wait running', 'it runs');
  await page.getByRole('button', { name: 'Cancel the run' }).click();
  await page.getByRole('heading', { name: /^slow (cancelled|failed)/ }).waitFor();
  await until(async () => (await page.getByRole('button', { name: 'Run slow' }).isEnabled()), 'another can begin');
  sound(page);
});

test('an_eval_that_cannot_be_used_and_a_server_without_evals_are_said', async (t) => {
  const folder = scratch();
  writeFileSync(join(folder, 'eval.yaml'), 'name: broken\nconfig: { target: sim }\nmetrics: []\ntasks: ["nothing.yaml"]\n');
  const server = await web('sim', '--evals', folder, '--runs', scratch());
  const page = await evals(t, server);
  await page.getByRole('button', { name: 'Run broken' }).click();
  await page.getByRole('alert').getByText(/nothing\.yaml/).waitFor();
  sound(page);
  const none = await evals(t, await web('sim'));
  await none.getByText('The server of this page has no evals.').waitFor();
  sound(none);
});

test('a_lost_connection_to_the_evals_is_said', async (t) => {
  const server = await web('sim', '--evals', EVALS, '--runs', scratch());
  const page = await evals(t, server);
  await page.getByRole('button', { name: 'Run rails' }).waitFor();
  server.child.kill();
  await page.getByRole('alert').getByText('the server stops').waitFor();
  await page.getByRole('button', { name: 'Try again' }).waitFor();
  sound(page, /WebSocket connection to|ERR_CONNECTION_REFUSED/);
});
