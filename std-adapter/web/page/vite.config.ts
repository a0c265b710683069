import { resolve } from 'node:path';
import { defineConfig } from 'vite';

// The command embeds this folder. The package's build script empties it, and puts rigline.js there first.
const dist = resolve(process.env.RIGLINE_DIST ?? '../dist');

export default defineConfig({
  base: './',
  resolve: { alias: { 'rigline-web': `${dist}/rigline.js` } },
  server: { fs: { allow: ['..'] } },
  build: { outDir: dist, emptyOutDir: false, sourcemap: false, target: 'es2022', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  worker: { format: 'es' },
});
