// Prints what an image takes: node size.mjs IMAGE... -> one JSON line each.
//   flash: bytes loaded into flash, the first values of .data included.  static_ram: .data, .bss and .uninit; the stack has the rest.
import path from 'node:path';
import { readImage } from './image.mjs';

for (const file of process.argv.slice(2)) {
  const { sizes } = readImage(file);
  if (!sizes) throw new Error(`${file}: sizes are known from an ELF only`);
  console.log(JSON.stringify({ image: path.basename(file), flash: sizes.flash, static_ram: sizes.staticRam }));
}
