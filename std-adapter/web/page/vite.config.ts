import { resolve } from 'node:path';
import { defineConfig } from 'vite';

// The command embeds this folder. The package's build script empties it, and puts rigline.js there first.
const dist = resolve(process.env.RIGLINE_DIST ?? '../dist');

/** What the page may load, as the server of the command says it in a header: other web servers send none. */
const POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'";

export default defineConfig({
  base: './',
  plugins: [
    {
      name: 'policy',
      apply: 'build',
      transformIndexHtml: () => [{ tag: 'meta', attrs: { 'http-equiv': 'Content-Security-Policy', content: POLICY }, injectTo: 'head-prepend' }],
    },
  ],
  resolve: { alias: { 'rigline-web': `${dist}/rigline.js` } },
  server: { fs: { allow: ['..'] } },
  build: { outDir: dist, emptyOutDir: false, sourcemap: false, target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  worker: { format: 'es' },
});
