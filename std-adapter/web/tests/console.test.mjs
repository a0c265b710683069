// The console of the board under test, as a terminal of the page "Live", over the WebSocket of `rigline web`.
import assert from 'node:assert/strict';
import test from 'node:test';
import { launch, open, picture, shows, sound, until, web } from './harness.mjs';

const browser = await launch();
const server = await web('sim');

async function power(page, on) {
  await page.getByRole('navigation', { name: 'Operations' }).getByRole('button', { name: 'power', exact: true }).click();
  await page.getByLabel('rail').selectOption('3V3');
  await page.getByRole('combobox', { name: /^on / }).selectOption(String(on));
  await page.getByRole('button', { name: 'Run power' }).click();
}

const terminal = (page) => page.getByLabel('What the console said');

async function says(page, text) {
  await until(async () => (await terminal(page).textContent()).includes(text), `${JSON.stringify(text)} in the terminal`);
}

async function enter(page, line) {
  const field = page.getByLabel('A line for the console');
  await field.fill(line);
  await field.press('Enter');
  await shows(() => field.inputValue(), '', 'the line is sent');
}

test('the_console_is_a_terminal_that_follows_what_the_board_says_and_sends_lines', async (t) => {
  const page = await open(t, browser, server.url);
  await page.getByRole('heading', { name: 'Console of the board under test' }).waitFor();
  await page.getByLabel('Follow').check();
  await power(page, true);
  await says(page, 'dut 1.2.0 ready');
  await enter(page, 'echo <b>a & b</b>');
  await says(page, '\n<b>a & b</b>\n');
  assert.equal(await terminal(page).locator('b').count(), 0, 'what a board says is text');
  await until(async () => /received \d+/.test(await page.getByText(/^received /).textContent()), 'the counters');
  await picture(page, 'console');

  // The rest of the page works meanwhile, and no reading of the console is in the history.
  await power(page, false);
  await until(async () => (await page.getByRole('region', { name: 'History' }).textContent()).includes('power'), 'the history');
  assert.equal((await page.getByRole('region', { name: 'History' }).textContent()).includes('uart-read'), false);

  const [saved] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save', exact: true }).first().click()]);
  assert.match(saved.suggestedFilename(), /^console.*\.txt$/);
  await page.getByRole('button', { name: 'Clear', exact: true }).first().click();
  await until(async () => !(await terminal(page).textContent()).includes('ready'), 'an empty terminal');
  sound(page);
});

test('two_pages_see_the_same_console', async (t) => {
  const pages = [await open(t, browser, server.url), await open(t, browser, server.url)];
  for (const page of pages) await page.getByLabel('Follow').check();
  await power(pages[0], true);
  for (const page of pages) await says(page, 'dut 1.2.0 ready');
  await enter(pages[1], 'echo to both');
  for (const page of pages) await says(page, '\nto both\n');
  for (const page of pages) sound(page);
});
