// The page "Live", over the WebSocket of `rigline web sim`.
import assert from 'node:assert/strict';
import test from 'node:test';
import { launch, open, picture, sound, web } from './harness.mjs';

const browser = await launch();
const server = await web('sim');

test('j_01_the_page_lists_the_operations_and_runs_measure', async () => {
  const page = await open(browser, server.url);
  await page.getByRole('heading', { name: /^rig 0/ }).waitFor();
  const names = await page.getByRole('navigation', { name: 'Operations' }).getByRole('button').allTextContents();
  assert.deepEqual(names, ['identify', 'power', 'measure', 'gpio-read', 'gpio-write', 'press', 'wait-for', 'wait-pin', 'self-test']);
  await page.getByRole('button', { name: 'measure', exact: true }).click();
  await page.getByLabel('channel').fill('3V3');
  await page.getByRole('button', { name: 'Run measure' }).click();
  await page.getByText('succeeded').first().waitFor();
  await picture(page, 'live-1280-light');
  sound(page);
});
