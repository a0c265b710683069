// Node's transports: programs and TCP servers.

import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { existsSync } from 'node:fs';
import { connect as connectTo } from 'node:net';

import { packagedCommand } from './command.js';
import { Rig, RiglineError } from './index.js';

export * from './index.js';

/** How long a program has to end after it was asked to, before it is killed, in milliseconds. */
const PATIENCE = 5000;

const TARGETS = 'sim, serial:PORT, serial:auto, tcp:HOST:PORT, exec:PROGRAM ARGS, replay:DIR, a path of a program, or a program with its arguments as a list';

/**
 * Opens a session. `target` is one that the command `rigline` takes: `sim`, `serial:PORT`, `serial:auto`, `tcp:HOST:PORT`,
 * `exec:PROGRAM ARGS`, `replay:DIR` or the path of a program; or a program with its arguments as a list, such as
 * `['./my-extension', '--flag']`. For `sim`, `serial:…`, `replay:…` and `tcp:…` with options, it starts the command: what
 * RIGLINE_BINARY names, else the one that came with this package, else the one in PATH.
 */
export async function connect(target, options = {}) {
  const settings = { workdir: process.cwd(), ...options };
  const text = typeof target === 'string' ? target.trim() : target;
  const server = typeof text === 'string' && /^tcp:(?:\/\/)?(?:\[([^\]]+)\]|([^:?/]+)):([0-9]+)$/.exec(text);
  if (!server) return Rig.open(await started(text), settings);
  const transport = await overTcp(server[1] ?? server[2], Number(server[3]), (options.startTimeout ?? 10) * 1000);
  // A late reply to an earlier client must match no call of this one.
  return Rig.open(transport, { base: randomInt(2 ** 30), ...settings });
}

/** The program of a target. */
async function started(target) {
  const command = commandOf(target);
  try {
    return await overProgram(command);
  } catch (error) {
    if (error.cause?.code !== 'ENOENT') throw error;
    if (command[0] === own()) {
      const hint = 'install it as the README of rigline says (`npm install`, `pip install` or `cargo install`), or name it in RIGLINE_BINARY';
      const why = process.env.RIGLINE_BINARY ? `RIGLINE_BINARY names ${command[0]}, which is not there` : `the command \`rigline\` is not in PATH; ${hint}`;
      throw new RiglineError('connect', `${JSON.stringify(target)}: ${why}`);
    }
    throw new RiglineError('connect', `${error.message}; known targets: ${TARGETS}`);
  }
}

const own = () => process.env.RIGLINE_BINARY || packagedCommand() || 'rigline';

function commandOf(target) {
  const wrong = (why) => new RiglineError('connect', `${JSON.stringify(target)} ${why}; known targets: ${TARGETS}`);
  if (Array.isArray(target) && target.length > 0 && target.every((word) => typeof word === 'string')) return target;
  if (typeof target !== 'string' || target === '') throw wrong('is not a target');
  if (target === 'sim') return [own(), 'rig'];
  const [, kind, rest] = /^([A-Za-z][A-Za-z0-9+.-]+):(.*)$/s.exec(target) ?? [];
  // A file may have a colon in its name.
  if (kind === undefined || (!/^(exec|serial|tcp|replay|https?)$/.test(kind) && existsSync(target))) return [target];
  switch (kind) {
    case 'exec': {
      const command = words(rest);
      if (command === null) throw wrong('has a quote that does not end');
      if (!command[0]) throw wrong('names no program');
      return command;
    }
    case 'serial':
    case 'tcp':
    case 'replay':
      if (/^(\?|$)/.test(rest)) throw wrong('names nothing after its colon');
      // Without --wait, the bridge would wait for an absent device for longer than the session's start may take.
      return [own(), 'bridge', '--wait', '1ms', '--line-limit', '8388608', '--', target];
    case 'http':
    case 'https':
      throw wrong('is HTTP, which this client does not support');
    default:
      throw wrong(`is not a target: there is no kind ${kind}`);
  }
}

/** The words of a command line, with the quotes and backslashes of a POSIX shell; null if a quote does not end. */
export function words(text) {
  const found = [];
  let word = null;
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (char === "'") {
      const end = text.indexOf("'", at + 1);
      if (end < 0) return null;
      word = (word ?? '') + text.slice(at + 1, end);
      at = end;
    } else if (char === '"') {
      word ??= '';
      for (at += 1; text[at] !== '"'; at += 1) {
        if (at >= text.length) return null;
        if (text[at] === '\\' && text[at + 1] === '\n') {
          at += 1;
          continue;
        }
        if (text[at] === '\\' && /["\\$`]/.test(text[at + 1] ?? '')) at += 1;
        word += text[at];
      }
    } else if (char === '\\') {
      at += 1;
      if (at >= text.length) return null;
      if (text[at] !== '\n') word = (word ?? '') + text[at];
    } else if (/[ \t\n]/.test(char)) {
      if (word !== null) found.push(word);
      word = null;
    } else {
      word = (word ?? '') + char;
    }
  }
  if (word !== null) found.push(word);
  return found;
}

/** A program's standard input and output. It has a process group of its own, so that a terminal's Ctrl-C does not reach it. */
export function overProgram([program, ...args]) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: 'pipe', detached: process.platform !== 'win32' });
    let stderr = '';
    let closing = null;
    const gone = new Promise((done) => child.once('close', done));
    const kill = () => {
      // Its children are in its group. What has left the group may still hold its output, and is not waited for.
      try {
        process.kill(process.platform === 'win32' ? child.pid : -child.pid, 'SIGKILL');
      } catch {
        // All have ended.
      }
      child.stdout.destroy();
      child.stderr.destroy();
    };
    const transport = {
      onData: () => {},
      onEnd: () => {},
      send: (text) => child.stdin.write(text),
      waiting: () => child.stdin.writableLength,
      close: () => {
        closing ??= (async () => {
          child.stdin.end();
          // A call that is out must not go on.
          child.kill();
          const timer = setTimeout(kill, PATIENCE);
          await gone;
          clearTimeout(timer);
        })();
        return closing;
      },
    };
    child.stdin.on('error', () => {});
    child.stdout.on('data', (data) => transport.onData(data));
    child.stderr.on('data', (data) => {
      stderr = (stderr + data).slice(-4000);
    });
    child.once('error', (error) => reject(Object.assign(new RiglineError('connect', `${program} cannot be started: ${error.message}`), { cause: error })));
    child.once('spawn', () => resolve(transport));
    child.once('close', (code, signal) => {
      const how = signal ? `was killed by ${signal}` : `has ended with exit status ${code}`;
      transport.onEnd(`${program} ${how}${stderr.trim() ? `; its standard error ends with:\n${stderr.trimEnd()}` : ''}`);
    });
  });
}

/** A TCP connection. */
export function overTcp(host, port, patience = 10000) {
  return new Promise((resolve, reject) => {
    const socket = connectTo({ host, port, noDelay: true });
    let why = 'the server closed the connection';
    // A longer time than setTimeout takes would be over at once.
    const timer = setTimeout(() => socket.destroy(new Error(`no connection within ${patience / 1000} s`)), Math.min(patience, 2 ** 31 - 1));
    const gone = new Promise((done) => socket.once('close', done));
    const transport = {
      onData: () => {},
      onEnd: () => {},
      send: (text) => socket.write(text),
      waiting: () => socket.writableLength,
      close: () => {
        socket.end();
        // The server may go on writing.
        const last = setTimeout(() => socket.destroy(), 1000);
        return gone.finally(() => clearTimeout(last));
      },
    };
    socket.on('data', (data) => transport.onData(data));
    socket.on('error', (error) => {
      why = error.message;
      reject(new RiglineError('connect', `tcp:${host}:${port} cannot be reached: ${error.message}`));
    });
    socket.once('connect', () => {
      clearTimeout(timer);
      resolve(transport);
    });
    socket.once('end', () => transport.onEnd(why));
    socket.once('close', () => {
      clearTimeout(timer);
      transport.onEnd(why);
    });
  });
}
