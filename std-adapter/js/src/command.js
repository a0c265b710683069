// The command `rigline` that comes with this package: a program of its own for each system, in a package of its own, which npm
// installs on that system only. A checkout has none.

import { createRequire } from 'node:module';

/** The package that has the command for this system. */
export const packageName = `@rigline/${process.platform}-${process.arch}`;

/** The path of the command, or null if its package is not installed. */
export function packagedCommand() {
  const name = process.platform === 'win32' ? 'rigline.exe' : 'rigline';
  try {
    return createRequire(import.meta.url).resolve(`${packageName}/bin/${name}`);
  } catch {
    return null;
  }
}
