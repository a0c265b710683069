// Streamable HTTP in front of a server on standard input and output, for the conformance suite, which asks by HTTP alone.
//
//     bridge.mjs COMMAND ARG...      prints its URL
//
// Messages pass as they are. A session of the legacy era has a process of its own, as a client would start it. The modern era has no
// sessions: each request has a process, and what that process writes is the response. Headers are not compared with messages.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import http from "node:http";
import readline from "node:readline";

const [command, ...words] = process.argv.slice(2);
const sessions = new Map();
const children = new Set();

function start(hear) {
  const child = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] });
  children.add(child);
  child.on("exit", () => children.delete(child));
  child.stdin.on("error", () => {});
  readline.createInterface({ input: child.stdout }).on("line", (line) => hear(JSON.parse(line)));
  return { say: (message) => child.stdin.write(`${JSON.stringify(message)}\n`), end: () => child.stdin.end() };
}

// A response to one request: JSON, or events if something comes before the reply.
function answer(response, headers) {
  const event = (message) => response.write(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
  return {
    send(message) {
      if (!response.headersSent) response.writeHead(200, { ...headers, "content-type": "text/event-stream" });
      event(message);
    },
    reply(message) {
      if (response.headersSent) {
        event(message);
        return response.end();
      }
      // The modern era has a status for these.
      const status = headers["mcp-session-id"] ? 200 : { "-32601": 404, "-32600": 400, "-32602": 400, "-32022": 400, "-32020": 400 }[message.error?.code];
      response.writeHead(status ?? 200, { ...headers, "content-type": "application/json" });
      return response.end(JSON.stringify(message));
    },
  };
}

// A session of the legacy era: replies go to who asked, and the rest to who asked last, or else to who listens.
function open() {
  const session = { id: randomUUID(), waiting: new Map(), listener: undefined };
  session.process = start((message) => {
    const waiting = session.waiting.get(message.id);
    if (waiting && message.method === undefined) {
      session.waiting.delete(message.id);
      return waiting.reply(message);
    }
    return ([...session.waiting.values()].at(-1) ?? session.listener)?.send(message);
  });
  sessions.set(session.id, session);
  return session;
}

function legacy(session, message, response) {
  if (message.id === undefined || message.method === undefined) {
    session.process.say(message);
    return response.writeHead(202).end();
  }
  session.waiting.set(message.id, answer(response, { "mcp-session-id": session.id }));
  response.on("close", () => session.waiting.delete(message.id));
  return session.process.say(message);
}

function modern(message, response) {
  const answering = answer(response, {});
  const server = start((line) => {
    if (line.id === message.id && line.method === undefined) {
      answering.reply(line);
      return server.end();
    }
    return answering.send(line);
  });
  response.on("close", () => server.end());
  return server.say(message);
}

async function handle(request, response) {
  const session = sessions.get(request.headers["mcp-session-id"]);
  if (request.method === "GET" && session) {
    session.listener = answer(response, { "mcp-session-id": session.id });
    response.writeHead(200, { "content-type": "text/event-stream" }).flushHeaders();
    return response.on("close", () => (session.listener = undefined));
  }
  if (request.method === "DELETE" && session) {
    session.process.end();
    sessions.delete(session.id);
    return response.writeHead(200).end();
  }
  if (request.method !== "POST") return response.writeHead(405).end();
  let body = "";
  for await (const part of request.setEncoding("utf8")) body += part;
  const message = JSON.parse(body);
  if (session) return legacy(session, message, response);
  if (message.method === "initialize") return legacy(open(), message, response);
  if (request.headers["mcp-session-id"]) return response.writeHead(404).end();
  if (message.id === undefined) return response.writeHead(202).end();
  return modern(message, response);
}

const server = http.createServer((request, response) => {
  handle(request, response).catch((error) => response.headersSent || response.writeHead(400).end(String(error)));
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
process.on("SIGTERM", () => {
  for (const child of children) child.kill();
  process.exit(0);
});
