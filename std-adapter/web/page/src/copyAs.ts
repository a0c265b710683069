import { type Schema, asSchema, formOf, membersOf } from './schema';

export interface Said {
  target: string;
  /** Where the server of this page takes calls, with the token; null: the page reaches the target without a server. */
  server: { call: URL; token: string } | null;
  operation: string;
  /** JSON text of an object. */
  args: string;
  timeout: number;
  schema: Schema;
}

export const KINDS = [
  ['cli', 'CLI command'],
  ['curl', 'curl'],
  ['step', 'eval step'],
  ['mcp', 'MCP call'],
] as const;
export type As = (typeof KINDS)[number][0];

/** The same call for another program. */
export function copyAs(as: As, said: Said): string {
  return { cli: command, curl, step, mcp }[as](said);
}

/** A word of a POSIX shell. */
function word(text: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

const PLAIN_NAME = /^[A-Za-z_][A-Za-z0-9_-]*$/;

function command({ target, operation, args, timeout, schema }: Said): string {
  const known = asSchema(schema.properties) as Record<string, Schema>;
  const members = membersOf(args);
  const words: string[] = [];
  for (const [name, raw] of members) {
    const form = formOf(asSchema(known[name]), 1);
    const value = raw.startsWith('"') ? (JSON.parse(raw) as string) : raw;
    const isScalar = form === 'integer' || form === 'number' || form === 'boolean' || (form === 'text' && /^[A-Za-z0-9]/.test(value)) || (form === 'choice' && /^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(value));
    // What the command line could read as something else goes as JSON.
    if (!isScalar || !PLAIN_NAME.test(name) || /[\r\n]/.test(value)) {
      return [...head(target, operation, timeout), '--args', word(args)].join(' ');
    }
    words.push(word(`${name}=${value}`));
  }
  return [...head(target, operation, timeout), ...words].join(' ');
}

function head(target: string, operation: string, timeout: number): string[] {
  const names = [word(target), word(operation)];
  const limit = timeout === 30 ? [] : ['--timeout', `${timeout}s`];
  return target.startsWith('-') || operation.startsWith('-') ? ['rigline call', ...limit, '--', ...names] : ['rigline call', ...limit, ...names];
}

function curl({ target, server, operation, args, timeout }: Said): string {
  if (server) {
    const params = `{"operation":${JSON.stringify(operation)},"args":${args},"context":{"timeout":"${timeout}s"}}`;
    return `curl -sS -H ${word(`Authorization: Bearer ${server.token}`)} -d ${word(params)} ${word(server.call.href)}`;
  }
  const body = `{"op":${JSON.stringify(operation)},"args":${args}}`;
  return [
    `# It asks this server: rigline serve ${word(target)} --http 127.0.0.1:8080 --protocol amplifier`,
    `curl -sS -d ${word(body)} http://127.0.0.1:8080/invoke`,
  ].join('\n');
}

function step({ operation, args, timeout }: Said): string {
  const id = operation.replace(/[^A-Za-z0-9_-]+/g, '-').replace(/^-+|-+$/g, '') || 'step';
  const limit = timeout === 30 ? '' : `, timeout: ${timeout}s`;
  // JSON is YAML, except for the characters that YAML wants escaped. The spaces are for people.
  const yaml = (json: string) =>
    json
      .replace(/[\u007f-\u009f\u2028\u2029\ufeff]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .replace(/"[^"\\]*(?:\\[^][^"\\]*)*"|[:,]/g, (token) => (token.startsWith('"') ? token : `${token} `));
  return `- { id: ${yaml(JSON.stringify(id))}, phase: verify, operation: ${yaml(JSON.stringify(operation))}, args: ${yaml(args)}${limit} }`;
}

function mcp({ operation, args }: Said): string {
  const name = operation.replace(/[^A-Za-z0-9_]/g, '_').slice(0, 64);
  return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":${JSON.stringify(name)},"arguments":${args}}}`;
}
