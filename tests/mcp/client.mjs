// Drives the rig over MCP with the official TypeScript clients: version 2, which speaks both eras, and version 1.
//
//     client.mjs stdio COMMAND ARG...
//     client.mjs http URL

import assert from "node:assert/strict";
import * as modern from "@modelcontextprotocol/client";
import { StdioClientTransport as ModernStdio } from "@modelcontextprotocol/client/stdio";
import { Client as LegacyClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as LegacyStdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as LegacyHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema } from "@modelcontextprotocol/sdk/types.js";

const [kind, ...words] = process.argv.slice(2);
// A wait that only a cancellation ends in time.
const FOREVER = { channel: "AUX", min: 9, max: 10, within_ms: 60000 };
const info = { name: "rigline-tests", version: "1.0.0" };

const transport = (Stdio, Http) =>
  kind === "stdio" ? new Stdio({ command: words[0], args: words.slice(1), stderr: "inherit" }) : new Http(new URL(words[0]));

// Everything that a connection receives, each message with its turn. Messages of one chunk are received in one turn.
function listen(connection) {
  const received = [];
  let turn = 0;
  // The SDK calls this before its own code gets the message.
  connection.onmessage = (message) => {
    received.push({ message, turn });
    queueMicrotask(() => (turn += 1));
  };
  return received;
}

async function drive(name, client, connection, call) {
  const received = listen(connection);
  await client.connect(connection);
  const { tools } = await client.listTools();
  assert(tools.some((tool) => tool.name === "self_test"), JSON.stringify(tools.map((tool) => tool.name)));
  assert(tools.every((tool) => tool.inputSchema.type === "object"));

  const measured = await call("measure", { channel: "3V3" });
  assert(measured.structuredContent.volts !== undefined && !measured.isError, JSON.stringify(measured));

  const heard = [];
  received.length = 0;
  const tested = await call("self_test", {}, { onprogress: (progress) => heard.push([progress.progress, progress.total]) });
  assert.deepEqual(tested.structuredContent, { passed: 6, failed: 0 });
  const reports = received.filter(({ message }) => message.method === "notifications/progress");
  const result = received.findIndex(({ message }) => message.result !== undefined);
  const sent = reports.map(({ message }) => [message.params.progress, message.params.total]);
  const wanted = [1, 2, 3, 4, 5, 6].map((done) => [done, 6]);
  assert.deepEqual(sent, wanted, "each report came once, in order");
  assert(reports.every((report) => received.indexOf(report) < result), "a report came after the result");
  // The SDKs drop the reports that come in one chunk with the result: modelcontextprotocol/typescript-sdk#2580. They hand on all others.
  assert.deepEqual(heard, wanted.slice(0, heard.length));
  const dropped = reports.slice(heard.length);
  assert(dropped.every(({ turn }) => turn === received[result].turn), JSON.stringify({ heard, received }));

  const failed = await call("measure", { channel: "nope" });
  assert(failed.isError && failed.content[0].text.includes("nope"), JSON.stringify(failed));
  await assert.rejects(call("no_such_tool", {}), (error) => error.code === -32602);

  // The reason of a failure with outputs reaches the agent: anthropics/claude-code#79944.
  const late = await call("wait_for", { channel: "AUX", min: 9, max: 10, within_ms: 50 });
  assert(late.isError && late.structuredContent === undefined, JSON.stringify(late));
  assert(late.content[0].text.includes("not from 9.000 to 10.000 V"), JSON.stringify(late));
  // What clients add to arguments, null, and numbers as text: n8n-io/n8n#21500, rossoctl/examples#175, VibiumDev/vibium#85.
  const loose = await call("measure", { channel: "3V3", samples: "4", toolCallId: "x", _y: {} });
  assert.equal(loose.structuredContent?.samples, 4, JSON.stringify(loose));
  assert.equal((await call("measure", { channel: "3V3", samples: null })).structuredContent?.samples, 16);
  const unknown = await call("power", { rail: "3V3", on: true, volts: 5 });
  assert(unknown.isError && unknown.content[0].text.includes("volts"), JSON.stringify(unknown));

  // Cancelling a call that changed nothing changes nothing; a rail that is on goes off, and the next result says so.
  const says = (result) => JSON.stringify(result.structuredContent).includes("outputs_switched_off");
  assert(!says(await call("measure", { channel: "3V3" })));
  await call("power", { rail: "3V3", on: true });
  const cancel = new AbortController();
  setTimeout(() => cancel.abort(), 500);
  await assert.rejects(call("wait_for", FOREVER, { signal: cancel.signal }));
  const started = Date.now();
  const after = await call("measure", { channel: "3V3" });
  assert(!after.isError && says(after), JSON.stringify(after));
  assert.deepEqual((await call("state", {})).structuredContent.rails_on, [], "the rail is off");
  assert(Date.now() - started < 20000, "the cancelled call still runs");
  await client.close();
  console.log(`${name}: lists, calls, progress, errors, cancels`);
}

for (const mode of ["auto", "legacy"]) {
  const client = new modern.Client(info, { versionNegotiation: { mode } });
  const call = (name, args, options) => client.callTool({ name, arguments: args }, options);
  await drive(`typescript 2 ${mode}`, client, transport(ModernStdio, modern.StreamableHTTPClientTransport), call);
}
const client = new LegacyClient(info);
const call = (name, args, options) => client.callTool({ name, arguments: args }, CallToolResultSchema, options);
await drive("typescript 1", client, transport(LegacyStdio, LegacyHttp), call);
process.exit(0);
