// Node's transports: programs and TCP servers.

import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { connect as connectTo } from 'node:net';

import { Rig, RiglineError } from './index.js';

export * from './index.js';

/** How long a program has to end after it was asked to, before it is killed, in milliseconds. */
const PATIENCE = 5000;

/**
 * Opens a session. `target` is `tcp:HOST:PORT`, `sim`, `serial:…` (by the program `rigline`, from PATH or RIGLINE_BINARY), or a
 * command as a list of words, such as `['./my-extension', '--flag']`.
 */
export async function connect(target, options = {}) {
  const settings = { workdir: process.cwd(), ...options };
  const server = typeof target === 'string' && /^tcp:(?:\[([^\]]+)\]|([^:?]+)):([0-9]+)$/.exec(target);
  if (!server) return Rig.open(await overProgram(commandOf(target)), settings);
  const transport = await overTcp(server[1] ?? server[2], Number(server[3]), (options.startTimeout ?? 10) * 1000);
  // A late reply to an earlier client must match no call of this one.
  return Rig.open(transport, { base: randomInt(2 ** 30), ...settings });
}

function commandOf(target) {
  if (Array.isArray(target) && target.length > 0) return target;
  const rigline = process.env.RIGLINE_BINARY || 'rigline';
  if (target === 'sim') return [rigline, 'rig'];
  if (typeof target === 'string' && /^(serial|tcp):./.test(target)) {
    // Without --wait, the bridge would wait for an absent device for longer than the session's start may take.
    return [rigline, 'bridge', '--wait', '1ms', '--line-limit', '8388608', '--', target];
  }
  const known = 'tcp:HOST:PORT, serial:PORT, sim, or a command as a list of words';
  throw new RiglineError('connect', `${JSON.stringify(target)} is not a target; expected one of: ${known}`);
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
    child.once('error', (error) => reject(new RiglineError('connect', `${program} cannot be started: ${error.message}`)));
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
