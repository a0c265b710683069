// The page's chart alone in Chromium: what the tests and the figures of the chart share.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const here = import.meta.dirname;
const { build } = createRequire(join(here, '../package.json'))('esbuild');

/** Serves the bench; gives its address, and ends it. */
export async function bench() {
  const { outputFiles } = await build({
    entryPoints: [join(here, 'chart-bench.tsx')],
    bundle: true,
    write: false,
    outdir: 'out',
    format: 'iife',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    nodePaths: [resolve(here, '../page/node_modules')],
    // The page's own address of the package.
    alias: { 'rigline-web': resolve(here, '../dist/rigline.js') },
  });
  const [script, style] = ['.js', '.css'].map((end) => outputFiles.find(({ path }) => path.endsWith(end)).text);
  const own = readFileSync(join(here, '../page/src/style.css'), 'utf8');
  const server = createServer((request, response) => {
    if (request.url === '/bench.js') response.setHeader('content-type', 'text/javascript').end(script);
    else response.setHeader('content-type', 'text/html').end(`<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>chart</title><style>${own}${style}</style><div id="app"></div><script src="/bench.js"></script>`);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => (server.closeAllConnections(), server.close()) };
}
