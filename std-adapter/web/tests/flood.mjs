// A flood of log lines on the page, and what it costs: shared by the tests and the figures.

/** Runs the operation `flood` of the page's extension. Times are in milliseconds. */
export async function flood(browser, page, count) {
  await page.getByRole('navigation', { name: 'Operations' }).getByRole('button', { name: 'flood', exact: true }).click();
  await page.getByLabel('count').fill(String(count));
  await page.getByLabel('Timeout').fill('600');
  await page.evaluate(() => {
    globalThis.gaps = [];
    let last = performance.now();
    const tick = () => {
      const now = performance.now();
      globalThis.gaps.push(now - last);
      last = now;
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
  // The processor time that a task takes says what the page does; the gaps between frames also have what other programs do meanwhile.
  await browser.startTracing(page, { categories: ['-*', 'toplevel', '__metadata'] });
  const begun = performance.now();
  await page.getByRole('button', { name: 'Run flood' }).click();
  await page.getByRole('group', { name: /^Result of call/ }).getByText('succeeded').waitFor();
  const took = performance.now() - begun;
  const gaps = await page.evaluate(() => globalThis.gaps);
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString());
  const main = new Set(traceEvents.filter(({ name, args }) => name === 'thread_name' && args.name === 'CrRendererMain').map(({ pid, tid }) => `${pid} ${tid}`));
  const tasks = traceEvents.filter(({ name, tdur, pid, tid }) => /RunTask$/.test(name) && tdur !== undefined && main.has(`${pid} ${tid}`)).map(({ tdur }) => tdur / 1000);
  const most = (all) => all.reduce((longest, one) => Math.max(longest, one), 0);
  return { took, frames: gaps.length, longestGap: most(gaps), tasks: tasks.length, longestTask: most(tasks), processor: tasks.reduce((sum, one) => sum + one, 0) };
}
