// An extension that nobody should have to meet: odd schemas, hostile names, floods. It speaks gevals on standard input and output.
import { createInterface } from 'node:readline';

const HOSTILE = '<img src=x onerror="globalThis.hacked=1"><script>globalThis.hacked=1</script>';

const operations = {
  odd: {
    description: 'Takes what schemas can say',
    params: {
      type: 'object',
      properties: {
        mode: { enum: ['fast', 'slow', 3, null], description: 'One of a few' },
        big: { type: 'integer', maximum: '#9007199254740993' },
        ratio: { type: 'number', multipleOf: 0.1, exclusiveMinimum: 0, exclusiveMaximum: 1 },
        name: { type: 'string', minLength: 2, maxLength: 4, pattern: '^[a-z]+$' },
        place: {
          type: 'object',
          properties: { city: { type: 'string' }, zip: { type: ['integer', 'null'] } },
          required: ['city'],
        },
        days: { type: 'array', items: { type: 'integer', minimum: 1, maximum: 7 }, minItems: 1, maxItems: 3, uniqueItems: true },
        any: { description: 'Anything' },
        either: { oneOf: [{ type: 'string' }, { type: 'boolean' }] },
        on: { type: 'boolean', default: true },
      },
      required: ['mode'],
    },
  },
  exact: {
    description: 'Has numbers that JavaScript does not have',
    params: {
      type: 'object',
      properties: {
        wide: { type: 'integer', minimum: '#-9223372036854775808', maximum: '#18446744073709551615', default: '#9007199254740993' },
        code: { enum: ['#9007199254740993', '#9007199254740995'] },
        only: { const: 'this' },
      },
    },
  },
  free: { description: 'Takes what no schema lists', params: { type: 'object', required: ['x'], additionalProperties: { type: 'integer' } } },
  either: { description: 'Has two forms', params: { anyOf: [{ type: 'object', required: ['a'] }, { type: 'object', required: ['b'] }] } },
  twins: {
    description: 'Arguments whose names could have the same id',
    params: { type: 'object', properties: { 'a-b': { type: 'string' }, a: { type: 'object', properties: { b: { type: 'string' }, hint: { type: 'string' } }, description: 'A place' }, 'a b': { type: 'string' }, a_20_b: { type: 'string' } } },
  },
  crowd: { description: 'Takes 300 arguments', params: { type: 'object', properties: Object.fromEntries(Array.from({ length: 300 }, (_, at) => [`argument-${at}`, { type: 'integer' }])) } },
  pattern: { description: 'd'.repeat(1_000_000), params: { type: 'object', properties: { text: { type: 'string', pattern: '^(\\w|\\w\\w)*$' }, mac: { type: 'string', pattern: '^([0-9a-f]{2}:){5}[0-9a-f]{2}$' } } } },
  constructor: { description: 'A name that objects have', params: { type: 'object', properties: { toString: { type: 'string' }, ['__proto__']: { type: 'integer' } } } },
  ['__proto__']: { description: 'Another one', params: { type: 'object', properties: { constructor: { type: 'integer', maximum: 3 } } } },
  extremes: { description: 'Answers with numbers at the ends', params: { type: 'object' } },
  pause: { description: 'Logs, and answers 5 seconds later', params: { type: 'object' } },
  flood: { description: 'Logs', params: { type: 'object', properties: { count: { type: 'integer', default: 1000 } } } },
  colors: { description: 'Logs in all colours of a terminal', params: { type: 'object' } },
  levels: { description: 'Logs at all levels', params: { type: 'object' } },
  units: { description: 'Answers with values as instruments write them', params: { type: 'object' } },
  wide: { description: 'Answers with digits that a double does not have', params: { type: 'object' } },
  texts: { description: 'Answers with texts that are no numbers', params: { type: 'object' } },
  near: { description: 'Answers with values that hardly differ', params: { type: 'object' } },
  swing: { description: 'Answers with a value that leaves its limits', params: { type: 'object' } },
  form: {
    description: 'Takes forty arguments',
    params: { type: 'object', properties: Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`setting-${at}`, { type: 'string', description: `The setting number ${at}` }])) },
  },
  noise: { description: 'Writes lines that are no messages', params: { type: 'object' } },
  many: { description: 'Answers with many outputs', params: { type: 'object' } },
  long: { description: 'Answers with a long text', params: { type: 'object' } },
  '=formula': { description: 'A name that a spreadsheet would run', params: { type: 'object' } },
  refuse: { description: 'Refuses a nested argument', params: operationParams() },
  [HOSTILE]: { description: HOSTILE, params: { type: 'object', properties: { [HOSTILE]: { type: 'string', description: HOSTILE, default: HOSTILE } } } },
};

function operationParams() {
  return { type: 'object', properties: { list: { type: 'array', items: { type: 'string' } } } };
}

/** A text such as `#12` is written as a number, which may have any digits. */
const send = (value) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...value }).replace(/"#(-?[0-9]+)"/g, '$1')}\n`);
const log = (message, level = 'info') => send({ method: 'log', params: { level, message } });
let calls = 0;
/** The outputs of operations that only have outputs. */
const ANSWERS = {
  units: () => ({ rail: `${(3.3 + calls / 1000).toFixed(3)} V`, current: `${120 + (calls % 7)} mA`, flags: '0x1f', comma: `3,${calls % 10}`, state: calls % 2 ? 'on' : 'off', meter: calls % 3 ? '1.25' : 'OL', painted: `\u001b[32m${calls % 5}.5 A\u001b[0m` }),
  wide: () => ({ count: `900719925474099${1 + (calls % 3)}`, volts: '0.000', exponent: '1.50E-03' }),
  texts: () => ({ name: 'board', list: '[1,2]', empty: '', address: '192.168.1.10', time: '12:30' }),
  near: () => ({ volts: (3.3 + (calls % 4) / 10_000).toFixed(4) }),
  swing: () => ({ volts: (3.3 + (calls % 10 > 6 ? 0.4 : 0)).toFixed(3) }),
};

for await (const line of createInterface({ input: process.stdin })) {
  if (line.trim() === '') continue;
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize') {
    send({ id, result: { name: HOSTILE, version: '\u001b[31m1.0', protocolVersion: '0.0.1', description: `\u202e${HOSTILE}`, operations } });
  } else if (method === 'execute') {
    const { operation, args } = params;
    const raw = /"args":(.*),"context"/.exec(line)[1];
    if (operation === 'flood') {
      for (let n = 1; n <= (args.count ?? 1000); n++) {
        log(`line ${n} ${'x'.repeat(80)}`);
        // Nothing is kept in memory beyond what the pipe takes.
        if (n % 500 === 0 && process.stdout.writableNeedDrain) await new Promise((done) => process.stdout.once('drain', done));
      }
    } else if (operation === 'noise') {
      process.stdout.write('BOOT \u001b[2J\u001b]0;title\u0007 <script>globalThis.hacked=1</script>\n');
    } else if (operation === 'refuse') {
      send({ id, error: { code: -32602, message: 'args.list[1]: must not be there' } });
      continue;
    }
    if (operation === '=formula') {
      send({ id, result: { success: true, outputs: { '=1+1': '5' } } });
      continue;
    }
    if (Object.hasOwn(ANSWERS, operation)) {
      calls += 1;
      send({ id, result: { success: true, outputs: ANSWERS[operation]() } });
      continue;
    }
    if (operation === 'colors') {
      const escape = (codes, text) => `\u001b[${codes}m${text}\u001b[0m`;
      for (const code of [30, 31, 32, 33, 34, 35, 36, 37, 90, 91, 92, 93, 94, 95, 96, 97]) log(`${escape(code, `colour ${code}`)} plain`);
      for (const code of ['1', '3', '4', '7', '9', '2', '41', '1;33;44', '38;5;208', '48;5;22', '38;2;255;235;59', '38:2::10:20:30', '31;42']) log(`${escape(code, `style ${code}`)} plain`);
      log('\u001b[2J\u001b[H\u001b]0;title\u0007cleared \u001b[Kline \u001b[31mred <b>no markup</b>');
    } else if (operation === 'levels') {
      for (const level of ['debug', 'info', 'warn', 'error']) for (const word of ['alpha', 'beta', 'gamma']) log(`${word} at ${level}`, level);
    }
    if (operation === 'pause') {
      log('the answer comes later');
      await new Promise((done) => setTimeout(done, 5000));
    }
    if (operation === 'extremes') {
      send({ id, result: { success: true, outputs: { value: '5', endless: '1e999', most: '1.7e308', least: '-1.7e308', large: '1e299', small: '5e-324' } } });
      continue;
    }
    const many = () => Object.fromEntries(Array.from({ length: 2000 }, (_, at) => [`output-${at}`, String(at)]));
    const outputs = operation === 'many' ? many() : operation === 'long' ? { text: 'y'.repeat(300_000) } : { args: raw, [HOSTILE]: HOSTILE };
    send({ id, result: { success: true, message: `${HOSTILE} \u001b[31m`, outputs } });
  } else {
    send({ id, result: {} });
    if (method === 'shutdown') process.exit(0);
  }
}
