#!/usr/bin/env node
// Runs the command `rigline` of this system with the same arguments, input and output, and ends as it ends.

import { spawn } from 'node:child_process';
import { constants } from 'node:os';

import { packageName, packagedCommand } from '../src/command.js';

const fail = (why) => {
  console.error(`rigline: ${why}`);
  process.exit(2);
};

const program = packagedCommand();
if (!program) {
  fail(
    `the package ${packageName}, which has the command for this system, is not installed; ` +
      'if npm leaves optional packages out (--omit=optional), install them',
  );
}
const child = spawn(program, process.argv.slice(2), { stdio: 'inherit', windowsHide: true });
child.once('error', (error) => fail(`${program} cannot be started: ${error.message}`));

// The command switches outputs off when it is asked to end, so it must hear of it. A terminal's Ctrl-C reaches it by itself, and a
// second one would cut it off.
const hasTerminal = [process.stdin, process.stdout, process.stderr].some((stream) => stream.isTTY);
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    if (signal !== 'SIGINT' || !hasTerminal) child.kill(signal);
  });
}
child.once('exit', (code, signal) => {
  if (signal === null) process.exit(code);
  // As the command was ended: whoever started this sees the same signal.
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // A signal that this process ignores.
  setTimeout(() => process.exit(128 + (constants.signals[signal] ?? 0)), 1000);
});
