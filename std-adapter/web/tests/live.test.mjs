// The page "Live", over the WebSocket of `rigline web`.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test from 'node:test';
import { HERE, PATIENCE, RIGLINE, chosen, launch, open, picture, run, scratch, shows, sound, until, web } from './harness.mjs';

const browser = await launch();
const server = await web('sim');
const oddTarget = `exec:${process.execPath} ${join(HERE, 'extension.mjs')}`;
const odd = await web(oddTarget);

async function choose(page, operation) {
  await page.getByRole('navigation', { name: 'Operations' }).getByRole('button', { name: operation, exact: true }).click();
}

async function outputs(page) {
  const rows = await page.getByRole('table', { name: 'Outputs' }).locator('tbody tr').all();
  return Object.fromEntries(await Promise.all(rows.map(async (row) => [await row.locator('th').textContent(), await row.locator('td').textContent()])));
}

/** The newest line that went to the rig. */
async function sent(page) {
  await page.getByRole('button', { name: 'Lines' }).click();
  const line = page.getByRole('listbox', { name: 'Lines' }).getByText('"execute"').last();
  const text = await line.textContent();
  await page.getByRole('button', { name: 'Logs', exact: true }).click();
  return JSON.parse(text);
}

test('the_page_lists_the_operations_and_runs_measure', async (t) => {
  const page = await open(t, browser, server.url);
  await page.getByRole('heading', { name: /^rig 0/ }).waitFor();
  const names = await page.getByRole('navigation', { name: 'Operations' }).getByRole('button').allTextContents();
  assert.deepEqual(names, ['identify', 'power', 'state', 'all-off', 'measure', 'gpio-read', 'gpio-write', 'press', 'wait-for', 'wait-pin', 'uart-write', 'uart-expect', 'uart-read', 'uart-break', 'measure-over-time', 'i2c-scan', 'i2c-transfer', 'count-pulses', 'pwm', 'spi-transfer', 'self-test']);
  await choose(page, 'measure');
  await page.getByLabel('channel').selectOption('3V3');
  await page.getByRole('button', { name: 'Run measure' }).click();
  await page.getByText('3V3 is at 0.00').first().waitFor();
  const found = await outputs(page);
  assert.deepEqual(Object.keys(found), ['volts', 'min', 'max', 'samples']);
  assert.match(found.volts, /^0\.00\d$/);
  assert.equal(found.samples, '16');
  // An optional argument that is left blank is left out.
  assert.deepEqual((await sent(page)).params.args, { channel: '3V3' });
  sound(page);
});

test('each_argument_shows_its_description_default_limits_and_its_error_beside_it', async (t) => {
  const page = await open(t, browser, server.url);
  await choose(page, 'measure');
  const samples = page.getByLabel('samples');
  assert.equal(await samples.getAttribute('placeholder'), '16');
  const hint = page.locator(`[id="${(await samples.getAttribute('aria-describedby')).split(' ')[0]}"]`);
  assert.equal(await hint.textContent(), 'How many readings to average. From 1 to 1000. Default: 16.');
  const errorOf = async (field) => {
    const ids = (await field.getAttribute('aria-describedby')).split(' ');
    return page.locator(`[id="${ids.at(-1)}"]`).textContent();
  };
  const submit = () => page.getByRole('button', { name: 'Run measure' }).click();
  await samples.fill('0');
  await submit();
  const channel = page.getByLabel('channel');
  await until(async () => /^This argument is required/.test(await errorOf(channel)), 'the error of a missing argument');
  await shows(() => errorOf(samples), 'This must be at least 1.');
  // The first wrong field has the focus.
  await until(() => channel.evaluate((element) => element === document.activeElement), 'the focus');
  for (const [text, why] of [['1001', 'This must be at most 1000.'], ['1.5', 'This must be a whole number.'], ['x', 'This must be a whole number, such as 5.'], ['1e400', 'This must be at most 1000.']]) {
    await samples.fill(text);
    await submit();
    await shows(() => errorOf(samples), why, text);
  }
  await samples.fill('1e1');
  await page.getByLabel('Timeout').fill('-1');
  // What the schema lists is chosen, not typed.
  assert.deepEqual(await channel.locator('option').allTextContents(), ['choose', '3V3', '5V0', 'AUX', 'TEMP']);
  await channel.selectOption('3V3');
  await submit();
  await page.getByText('The timeout must be more than 0').waitFor();
  await page.getByLabel('Timeout').fill('');
  await submit();
  await page.getByText('succeeded').first().waitFor();
  assert.deepEqual((await sent(page)).params.args, { channel: '3V3', samples: 10 });
  // What only the extension knows stands beside the field too.
  await choose(page, 'wait-for');
  await page.getByLabel('channel').selectOption('AUX');
  const min = page.getByLabel('min');
  await min.fill('4');
  await page.getByLabel('max').fill('3');
  await page.getByRole('button', { name: 'Run wait-for' }).click();
  await page.getByText('refused').first().waitFor();
  await until(async () => /^4\.000 is above args\.max/.test(await errorOf(min)), "the extension's words beside the field");
  await picture(page, 'error-1280-light');
  assert.deepEqual((await sent(page)).params.args, { channel: 'AUX', min: 4, max: 3 });
  sound(page);
});

test('logs_come_as_they_are_written_and_outputs_stand_in_a_table', async (t) => {
  const slow = await open(t, browser, odd.url);
  await choose(slow, 'pause');
  await slow.getByRole('button', { name: 'Run pause' }).click();
  const paused = slow.getByRole('group', { name: /^Result of call/ });
  await paused.getByText('the answer comes later').waitFor();
  await paused.getByText('running').waitFor();
  await paused.getByText('succeeded').waitFor();
  sound(slow);

  const page = await open(t, browser, server.url);
  await choose(page, 'self-test');
  await page.getByRole('button', { name: 'Run self-test' }).click();
  const result = page.getByRole('group', { name: /^Result of call/ });
  await result.getByText('3V3 off: passed').waitFor();
  await result.getByText('succeeded').waitFor();
  assert.deepEqual(await outputs(page), { passed: '6', failed: '0' });
  // A row is one line high; the chosen one is shown whole.
  await page.getByRole('listbox', { name: 'Logs', exact: true }).getByText('LED is dark').click();
  await shows(() => page.getByLabel('The chosen line').textContent(), 'LED is dark after 0 ms');
  await picture(page, 'self-test-1280-light');
  sound(page);
});

test('a_call_can_be_cancelled_and_a_new_session_begins', async (t) => {
  const page = await open(t, browser, server.url);
  await choose(page, 'wait-for');
  await page.getByLabel('channel').selectOption('AUX');
  await page.getByLabel('min').fill('3');
  await page.getByLabel('max').fill('4');
  await page.getByLabel('within_ms').fill('60000');
  await page.getByLabel('Timeout').fill('60');
  await page.getByRole('button', { name: 'Run wait-for' }).click();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByText('A new session has begun. Outputs may have changed: read them.').first().waitFor();
  await page.getByText('Connected through rigline web').waitFor();
  await choose(page, 'identify');
  await page.getByRole('button', { name: 'Run identify' }).click();
  await page.getByText('rig 0.1.0 on board').first().waitFor();
  sound(page);
});

test('the_history_keeps_calls_and_runs_them_again', async (t) => {
  const page = await open(t, browser, server.url);
  await choose(page, 'power');
  await page.getByLabel('rail').selectOption('5V0');
  await page.getByRole('combobox', { name: /^on / }).selectOption('true');
  await page.getByRole('button', { name: 'Run power' }).click();
  await page.getByText('succeeded').first().waitFor();
  await choose(page, 'measure');
  await page.getByLabel('channel').selectOption('5V0');
  await page.getByRole('button', { name: 'Run measure' }).click();
  await page.getByRole('button', { name: 'Run again: call 2, measure' }).waitFor();
  await choose(page, 'identify');
  await page.getByRole('button', { name: 'Run again: call 2, measure' }).click();
  await page.getByRole('rowheader', { name: '3. measure' }).waitFor();
  // Its form is there again, as it was filled in.
  await shows(() => chosen(page.getByLabel('channel')), '5V0');
  await until(async () => /^[45]\.\d{3}$/.test((await outputs(page)).volts ?? ''), 'the rail is on');
  await shows(() => page.getByRole('region', { name: 'History' }).getByRole('row').count(), 4);
  sound(page);
});

test('a_call_is_copied_as_a_command_curl_an_eval_step_and_an_mcp_call_that_work', async (t) => {
  const page = await open(t, browser, server.url, { permissions: ['clipboard-read', 'clipboard-write'] });
  await choose(page, 'measure');
  await page.getByLabel('channel').selectOption('3V3');
  await page.getByLabel('samples').fill('4');
  const copied = async (name, from = page) => {
    await from.evaluate(() => navigator.clipboard.writeText(''));
    await from.getByLabel('Copy this call as').selectOption({ label: name });
    const text = await until(() => from.evaluate(() => navigator.clipboard.readText()), 'the text in the clipboard');
    await shows(() => from.getByLabel('The call as text').inputValue(), text);
    await from.getByText('Copied.').waitFor();
    return text;
  };
  const shell = (text) => execFileSync('bash', ['-c', text], { encoding: 'utf8', env: { ...process.env, PATH: `${dirname(RIGLINE)}:${process.env.PATH}` } });
  const command = await copied('CLI command');
  assert.equal(command, 'rigline call sim measure channel=3V3 samples=4');
  assert.match(shell(command), /3V3 is at/);

  const step = await copied('eval step');
  assert.equal(step, '- { id: "measure", phase: verify, operation: "measure", args: {"channel": "3V3", "samples": 4} }');
  const folder = scratch();
  writeFileSync(join(folder, 'eval.yaml'), 'name: copied\nconfig: { target: sim }\nmetrics: [{ name: m, weight: 1.0, threshold: 1.0 }]\ntasks: ["task.yaml"]\n');
  writeFileSync(join(folder, 'task.yaml'), `id: copied\nname: copied\nsteps:\n  ${step}\ngraders:\n  - { type: output_range, step: measure, output: volts, min: -1, max: 1 }\n`);
  const evaluated = await run(['eval', 'run', folder, '--runs', join(folder, 'runs')]);
  assert.equal(evaluated.code, 0, evaluated.stdout + evaluated.stderr);

  // The server of the page itself answers, beside the page's session.
  const answer = JSON.parse(shell(await copied('curl')));
  assert.equal(answer.success, true);
  assert.equal(answer.outputs.samples, '4');

  assert.deepEqual(JSON.parse(await copied('MCP call')), { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'measure', arguments: { channel: '3V3', samples: 4 } } });

  // What a shell would take apart is quoted.
  const texts = await open(t, browser, odd.url, { permissions: ['clipboard-read', 'clipboard-write'] });
  await choose(texts, 'form');
  const text = "it's $(touch x) `y` \"z\"";
  await texts.getByLabel(/^setting-0 /).fill(text);
  await texts.getByLabel(/^setting-1 /).fill('4');
  const quoted = await copied('CLI command', texts);
  const words = execFileSync('bash', ['-c', `rigline() { printf '%s\\n' "$@"; }; ${quoted}`], { encoding: 'utf8' }).trim().split('\n');
  assert.deepEqual(words, ['call', oddTarget, 'form', `setting-0=${text}`, 'setting-1=4']);
  sound(page);
  sound(texts);
});

test('forms_for_everything_that_a_schema_says', async (t) => {
  const page = await open(t, browser, odd.url);
  await choose(page, 'odd');
  const submit = () => page.getByRole('button', { name: 'Run odd' }).click();
  const field = (name) => page.getByLabel(new RegExp(`^${name} `));
  await page.getByRole('button', { name: 'Add an entry to days' }).click();
  await page.getByRole('button', { name: 'Add an entry to days' }).click();
  await field('days 1').fill('8');
  await field('days 2').fill('2');
  await field('big').fill('9007199254740994');
  await field('ratio').fill('0.35');
  await field('name').fill('A');
  await field('zip').fill('x');
  await field('any').fill('{"a":');
  await field('either').fill('true');
  await submit();
  const errors = page.locator('form .error');
  await shows(() => errors.count(), 8);
  const said = await errors.allTextContents();
  assert.deepEqual(said, [
    'This argument is required.',
    'This must be at most 9007199254740993.',
    'This must be a multiple of 0.1.',
    'This must have at least 2 characters; it has 1.',
    'This argument is required. Type "" to send an empty text.',
    'This must be a whole number, such as 5.',
    'This must be at most 7.',
    said[7],
  ]);
  assert.match(said[7], /^This is not JSON: /);
  await picture(page, 'schema-1280-light');
  await field('mode').selectOption({ label: 'slow' });
  // Digits beyond those of a double are sent as they are.
  await field('big').fill('-123456789012345678901234567890');
  await field('ratio').fill('0.3');
  await field('name').fill('abcd');
  await field('city').fill('""');
  await field('zip').fill('null');
  await field('days 1').fill('2');
  await field('any').fill('{"a":\n[1.50]}');
  await submit();
  await page.getByText('This must not contain the same entry twice.').waitFor();
  await page.getByRole('button', { name: 'Remove days 2' }).click();
  await submit();
  await until(async () => (await outputs(page)).args, 'the answer');
  assert.equal(
    (await outputs(page)).args,
    '{"mode":"slow","big":-123456789012345678901234567890,"ratio":0.3,"name":"abcd","place":{"city":"","zip":null},"days":[2],"any":{"a": [1.50]},"either":true}',
  );
  // The whole draft comes back from the history.
  await choose(page, 'flood');
  await page.getByRole('button', { name: /^Run again: call 1,/ }).click();
  await shows(() => field('city').inputValue(), '""');
  await shows(() => field('days 1').inputValue(), '2');
  // The place of a refusal within a list.
  await choose(page, 'refuse');
  for (const at of [1, 2]) {
    await page.getByRole('button', { name: 'Add an entry to list' }).click();
    await field(`list ${at}`).fill('x');
  }
  await page.getByRole('button', { name: 'Run refuse' }).click();
  const second = field('list 2');
  await until(async () => (await second.getAttribute('aria-invalid')) === 'true', 'the second entry is marked');
  sound(page);
});

test('a_call_with_very_many_outputs_is_bounded_and_counted', async (t) => {
  const page = await open(t, browser, odd.url);
  await choose(page, 'many');
  await page.getByRole('button', { name: 'Run many' }).click();
  await page.getByText('1,500 more outputs.').waitFor();
  assert.equal(await page.getByRole('table', { name: 'Outputs' }).locator('tbody tr').count(), 500);
  await choose(page, 'long');
  await page.getByRole('button', { name: 'Run long' }).click();
  const value = await until(async () => (await outputs(page)).text, 'the long output');
  assert.ok(value.length < 11_000, 'a long value is cut');
  sound(page);
});

test('what_an_extension_says_is_text_and_nothing_else', async (t) => {
  const page = await open(t, browser, odd.url);
  const hostile = '<img src=x onerror="globalThis.hacked=1"><script>globalThis.hacked=1</script>';
  await page.getByRole('heading', { name: hostile }).first().waitFor();
  await choose(page, hostile);
  await page.getByRole('button', { name: /^Run </ }).click();
  await page.getByText('succeeded').first().waitFor();
  const text = await page.locator('body').textContent();
  assert.ok(text.includes(hostile));
  assert.ok(!/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/.test(text), 'no control and no mark that reorders text');
  assert.ok(text.includes('\u241b[31m1.0'), 'an escape is visible');
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
  assert.equal(await page.locator('img').count(), 0);
  await choose(page, 'noise');
  await page.getByRole('button', { name: 'Run noise' }).click();
  await page.getByRole('button', { name: 'Lines' }).click();
  await page.getByRole('listbox', { name: 'Lines' }).getByText('globalThis.hacked').last().waitFor();
  assert.equal(await page.evaluate(() => globalThis.hacked), undefined);
  sound(page);
});

test('a_flood_of_lines_stays_usable_in_bounded_memory_and_what_is_dropped_is_counted', async (t) => {
  const page = await open(t, browser, odd.url);
  page.context().setDefaultTimeout(4 * PATIENCE);
  const session = await page.context().newCDPSession(page);
  const heap = async () => {
    await session.send('HeapProfiler.collectGarbage');
    return (await session.send('Runtime.getHeapUsage')).usedSize;
  };
  await choose(page, 'flood');
  await page.getByLabel('count').fill('20000');
  await page.getByRole('button', { name: 'Run flood' }).click();
  await page.getByText('succeeded').first().waitFor();
  const before = await heap();
  await page.getByLabel('count').fill('100000');
  await page.getByLabel('Timeout').fill('120');
  await page.getByRole('button', { name: 'Run flood' }).click();
  // While it floods, the page answers.
  const begun = Date.now();
  await choose(page, 'long');
  await page.getByRole('heading', { name: 'long', exact: true }).waitFor();
  assert.ok(Date.now() - begun < 5000, 'the page answers');
  await until(async () => (await page.getByRole('region', { name: 'History' }).getByText('succeeded').count()) === 2, 'the flood is over', 4 * PATIENCE);
  assert.match(await page.locator('[data-count]').textContent(), /^5,000 lines\. [0-9,]+ older lines were dropped\.$/);
  assert.ok((await page.locator('.virtual .row').count()) < 120, 'only rows on the screen exist');
  const grown = (await heap()) - before;
  assert.ok(grown < 8 << 20, `grew by ${grown} bytes`);
  sound(page);
});

test('without_a_target_the_page_offers_what_is_plugged_in_and_says_who_holds_it', async (t) => {
  const none = await web();
  const page = await open(t, browser, none.url);
  const ports = page.getByRole('table');
  await ports.getByRole('columnheader', { name: 'Held by' }).waitFor();
  await picture(page, 'choose-1280-light');
  await page.getByRole('button', { name: 'Connect to sim' }).click();
  await page.getByRole('heading', { name: /^rig 0/ }).waitFor();
  await page.getByRole('button', { name: 'Disconnect', exact: true }).click();
  await page.getByText('Connect to a rig').waitFor();
  sound(page);
});

test('a_server_that_ends_is_said_and_reconnecting_is_offered', async (t) => {
  const mine = await web('sim');
  const page = await open(t, browser, mine.url);
  await page.getByRole('heading', { name: /^rig 0/ }).waitFor();
  mine.child.kill();
  await page.getByRole('heading', { name: /does not answer/ }).waitFor();
  await page.getByText('the server stops').first().waitFor();
  await page.getByRole('button', { name: 'Reconnect' }).click();
  await page.getByText('the connection was cut').first().waitFor();
  sound(page, /WebSocket connection to|ERR_CONNECTION_REFUSED/);
});

test('a_wrong_token_is_refused_in_plain_words', async (t) => {
  const page = await open(t, browser, server.url.replace(/token=.*/, 'token=0123456789abcdef0123456789abcdef'));
  await page.getByRole('alert').getByText('Open the address that rigline web printed').waitFor();
  sound(page, /401/);
});

test('the_session_ends_kept_or_safe', async (t) => {
  const page = await open(t, browser, server.url);
  await page.getByRole('button', { name: 'Disconnect and keep outputs on' }).click();
  await page.getByText('which leaves its outputs as they are').waitFor({ state: 'attached' });
  await page.getByRole('button', { name: 'Connect to sim' }).click();
  await page.getByRole('heading', { name: /^rig 0/ }).waitFor();
  sound(page);
});

test('the_traffic_is_saved_as_a_transcript_that_replay_takes', async (t) => {
  const page = await open(t, browser, server.url);
  await choose(page, 'identify');
  await page.getByRole('button', { name: 'Run identify' }).click();
  await page.getByText('succeeded').first().waitFor();
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save as transcript' }).click()]);
  const file = join(scratch(), 'session.jsonl');
  await download.saveAs(file);
  const replayed = await run(['replay', file, 'sim', '--help']);
  assert.equal(replayed.code, 0);
  const again = await run(['replay', file, 'sim']);
  // Uptime differs, so replay may say so; it must not call the file unusable.
  assert.ok(again.code === 0 || again.code === 1, `${again.code}: ${again.stderr}`);
  sound(page);
});

test('names_that_javascript_uses_itself_are_operations_and_arguments_like_others', async (t) => {
  const page = await open(t, browser, odd.url);
  await choose(page, 'constructor');
  await page.getByLabel(/^toString /).fill('text');
  await page.getByLabel(/^__proto__ /).fill('7');
  await page.getByRole('button', { name: 'Run constructor' }).click();
  await until(async () => (await outputs(page)).args === '{"toString":"text","__proto__":7}', 'the answer');
  await choose(page, '__proto__');
  await page.getByLabel(/^constructor /).fill('4');
  await page.getByRole('button', { name: 'Run __proto__' }).click();
  await page.getByText('This must be at most 3.').waitFor();
  await page.getByLabel(/^constructor /).fill('3');
  await page.getByRole('button', { name: 'Run __proto__' }).click();
  await until(async () => (await outputs(page)).args === '{"constructor":3}', 'the answer');
  // What was typed stays with its operation.
  await choose(page, 'constructor');
  await shows(() => page.getByLabel(/^toString /).inputValue(), 'text');
  sound(page);
});

test('numbers_of_a_schema_keep_all_digits', async (t) => {
  const page = await open(t, browser, odd.url);
  await choose(page, 'exact');
  await page.getByText('From -9223372036854775808 to 18446744073709551615. Default: 9007199254740993.').waitFor();
  const wide = page.getByLabel(/^wide /);
  await wide.fill('18446744073709551616');
  await page.getByRole('button', { name: 'Run exact' }).click();
  await page.getByText('This must be at most 18446744073709551615.').waitFor();
  await wide.fill('18446744073709551615');
  await page.getByLabel(/^code /).selectOption({ label: '9007199254740993' });
  await page.getByLabel(/^only /).selectOption({ label: 'this' });
  await page.getByRole('button', { name: 'Run exact' }).click();
  await until(async () => (await outputs(page)).args === '{"wide":18446744073709551615,"code":9007199254740993,"only":"this"}', 'the answer');
  sound(page);
});

test('arguments_for_which_there_are_no_fields_are_written_as_json', async (t) => {
  const page = await open(t, browser, odd.url);
  const field = page.getByLabel(/^arguments /);
  for (const [operation, wrong, why, right] of [
    ['free', '', 'This needs the member x.', '{"x":1,"more":2}'],
    ['either', '[1]', 'The arguments must be a JSON object.', '{"b":true}'],
    ['crowd', '{"argument-7":"x"}', 'The member argument-7 must be a whole number.', '{"argument-299":1}'],
  ]) {
    await choose(page, operation);
    await field.fill(wrong);
    await page.getByRole('button', { name: `Run ${operation}` }).click();
    await page.getByText(why).waitFor();
    await field.fill(right);
    await page.getByRole('button', { name: `Run ${operation}` }).click();
    await until(async () => (await outputs(page)).args === right, `the answer of ${operation}`);
  }
  await page.getByRole('button', { name: /^Run again: call 1,/ }).click();
  await shows(() => field.inputValue(), '{"x":1,"more":2}');
  sound(page);
});

test('a_pattern_that_would_take_for_ever_and_a_very_long_description_do_not_stop_the_page', async (t) => {
  const page = await open(t, browser, odd.url);
  await choose(page, 'pattern');
  assert.ok((await page.locator('main').textContent()).length < 50_000, 'a long description is cut');
  await page.getByLabel(/^text /).fill(`${'a'.repeat(60)}!`);
  await page.getByLabel(/^mac /).fill('00:11:22:33:44:5');
  await page.getByRole('button', { name: 'Run pattern' }).click();
  // Patterns that cost little are checked.
  await page.locator('form .error').getByText('This must match ^([0-9a-f]{2}:){5}[0-9a-f]{2}$.').waitFor();
  await page.getByLabel(/^mac /).fill('00:11:22:33:44:55');
  await page.getByRole('button', { name: 'Run pattern' }).click();
  // The server, which takes no such time, judges the other one.
  await page.getByRole('group', { name: /^Result of call/ }).getByText('refused').waitFor();
  sound(page);
});

test('back_and_forward_go_through_the_views_and_the_session_goes_on', async (t) => {
  const page = await open(t, browser, server.url);
  await page.getByRole('heading', { name: /^rig 0/ }).waitFor();
  await page.getByRole('tab', { name: 'Plots' }).click();
  await page.getByRole('tab', { name: 'Transcript' }).click();
  await page.getByRole('heading', { name: 'Open a transcript' }).waitFor();
  await page.goBack();
  await page.getByRole('heading', { name: 'What is sampled' }).waitFor();
  await page.goBack();
  await page.getByRole('heading', { name: /^rig 0/ }).waitFor();
  await page.goForward();
  await page.getByRole('heading', { name: 'What is sampled' }).waitFor();
  await page.goBack();
  await page.getByRole('button', { name: 'Lines' }).click();
  // One session, begun once.
  await shows(() => page.getByRole('listbox', { name: 'Lines' }).getByText('"initialize"').count(), 1);
  sound(page);
});

test('no_two_parts_of_a_form_have_the_same_id', async (t) => {
  const page = await open(t, browser, odd.url);
  await choose(page, 'twins');
  await page.getByRole('heading', { name: 'twins', exact: true }).waitFor();
  const ids = await page.locator('[id]').evaluateAll((all) => all.map((one) => one.id));
  assert.deepEqual(ids.filter((id, at) => ids.indexOf(id) !== at), []);
  for (const name of ['a-b', 'b', 'hint', 'a b', 'a_20_b']) await page.getByLabel(new RegExp(`^${name} string`)).fill(`in ${name}`);
  await page.getByRole('button', { name: 'Run twins' }).click();
  await until(async () => (await outputs(page)).args === '{"a-b":"in a-b","a":{"b":"in b","hint":"in hint"},"a b":"in a b","a_20_b":"in a_20_b"}', 'the answer');
  sound(page);
});
