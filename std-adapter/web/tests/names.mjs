// An extension that says its names by `identify`, and takes each of them as a text whose schema lists none.
import { createInterface } from 'node:readline';

const lists = { rails: ['3V3', '5V0'], channels: ['3V3', '5V0', 'AUX', 'TEMP'], inputs: ['LED', 'LED2', 'GP15'], outputs: ['GP14'], buttons: ['RESET', 'USER'] };
const taking = (name, description) => ({ params: { type: 'object', properties: { [name]: { type: 'string', description } }, required: [name] } });
const operations = {
  identify: { params: { type: 'object' } },
  power: taking('rail', "The rail's name"),
  measure: taking('channel', "The channel's name"),
  'gpio-read': taking('pin', "The pin's name, an input's or an output's"),
  'gpio-write': taking('pin', "The output pin's name"),
  press: taking('button', "The button's name"),
};

const send = (value) => console.log(JSON.stringify({ jsonrpc: '2.0', ...value }));

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (method === 'initialize') send({ id, result: { name: 'names', version: '1.0.0', protocolVersion: '0.0.1', operations } });
  else if (method !== 'execute') send({ id, result: {} });
  else if (params.operation === 'identify') send({ id, result: { success: true, outputs: Object.fromEntries(Object.entries(lists).map(([name, list]) => [name, JSON.stringify(list)])) } });
  else send({ id, result: { success: true, outputs: params.args } });
  if (method === 'shutdown') process.exit(0);
}
