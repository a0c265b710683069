// What a bundler makes a page of.
import { Decoder, load } from 'rigline-web';

globalThis.consumed = load().then(() => new Decoder().push(new TextEncoder().encode('{"id":1,"result":{}}\n')).map((message) => message.kind));
