// Uses all that the package exports, as a program with strict types does. Lines behind `@ts-expect-error` must be refused.
import { Client, Decoder, type Answer, type Event, type Fault, type Kind, type Log, type Manifest, Message, type Port, type Protocol, type Result, Rig, RiglineError, type Transport, duration, load, module, toJson, validate, webSerial, webSocket } from 'rigline-web';

export async function main(port: Port): Promise<string> {
  await load();
  await load(new Uint8Array(8));
  const compiled: WebAssembly.Module = module();
  await load(compiled);
  const fault: Fault | null = validate('[1]');
  const decoder = new Decoder({ limit: 1024, serial: true });
  const messages: Message[] = decoder.push(new Uint8Array(3));
  const kinds: Kind[] = messages.map((message) => message.kind);
  const protocol: Protocol | null = messages[0]?.protocol ?? null;
  const client = new Client(5);
  const { id, line }: { id: number; line: string } = client.request('initialize', '{}');
  const events: Event[] = client.receive(line);
  for (const event of events) {
    if ('reply' in event) {
      const answer: Answer = event.reply.answer;
      console.log(answer.kind, answer.outputs?.get('volts'));
    } else if ('log' in event) console.log(event.log.level);
  }
  const transports: Transport[] = [await webSocket('ws://localhost/ws'), await webSocket(new URL('ws://localhost/ws')), await webSerial(port, { baudRate: 9600 })];
  const rig = await Rig.open(transports[0] as Transport, { session: new Client(), timeout: 3, onLog: (log: Log) => console.log(log.message) });
  const manifest: Manifest = rig.manifest;
  try {
    const result: Result = await rig.call('measure', { channel: '3V3', samples: 16n, list: [1, null, true] }, { timeout: 2 });
    console.log(result.outputs.get('volts'));
  } catch (error) {
    if (error instanceof RiglineError && error.kind === 'timeout') console.log(error.operation);
  }
  await rig.close({ keep: true });
  // @ts-expect-error
  decoder.push('text');
  // @ts-expect-error
  new Decoder({ limit: '5' });
  // @ts-expect-error
  client.request('execute', {});
  // @ts-expect-error
  client.receive(5);
  // @ts-expect-error
  await rig.call(5);
  // @ts-expect-error
  await rig.call('measure', { when: new Date() });
  // @ts-expect-error
  validate({});
  return `${fault?.reason}${kinds.join()}${protocol}${id}${manifest.name}${duration(5)}${toJson({ a: 1n })}`;
}
