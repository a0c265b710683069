import { signal } from '@preact/signals';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { type Port, ask, callAddress, info, isServed, refusal, show, token } from './address';
import { Console } from './ConsoleView';
import { Arguments } from './Form';
import { type As, KINDS, copyAs } from './copyAs';
import { choose, chosen, drafts, fill, setDraft, timeouts } from './forms';
import { learn } from './known';
import { collect, namedArgument } from './schema';
import {
  type Call,
  type Operation,
  calls,
  cancel,
  connect,
  disconnect,
  isBack,
  lines,
  logs,
  manifest,
  placeOf,
  ready,
  reconnect,
  run,
  serialPlace,
  state,
  targetName,
  traffic,
  usbName,
  words,
} from './session';
import * as poll from './poll';
import { reading } from './reading';
import { Readings } from './ReadingsView';
import * as readings from './readings';
import { Said } from './Said';
import { messageOf, milliseconds, oneLine, plural, shown } from './text';
import { WhoHasIt } from './WhoHasIt';
import { WhoIsHere } from './WhoIsHere';
import { Logs, Traffic } from './Traffic';

const refused = signal<{ operation: string; errors: Map<string, string> } | null>(null);

export function LiveView() {
  return (
    <div class="live">
      <Connection />
      <Readings />
      {manifest.value && state.value.at !== 'idle' && <Operations />}
      {manifest.value && state.value.at !== 'idle' && <Console />}
      {calls.value.length > 0 && <History />}
      {(logs.length > 0 || lines.length > 0 || manifest.value) && <Traffic />}
    </div>
  );
}

// The connection

function Connection() {
  const current = state.value;
  const place = placeOf(current);
  if (current.at === 'idle') return <Choices />;
  if (current.at === 'connecting') {
    return (
      <section class="panel" aria-label="Connection">
        <p>Connecting to {shown(current.place.label)} …</p>
        {current.place.kind === 'socket' && <WhoHasIt />}
        <button type="button" onClick={() => disconnect()}>
          Stop connecting
        </button>
      </section>
    );
  }
  if (current.at === 'ended') {
    return (
      <section class="panel problem" aria-label="Connection">
        <h2>{current.unplugged ? 'The board was unplugged' : current.isServerGone ? `The server at ${location.host} does not answer` : 'There is no connection'}</h2>
        {current.isServerGone ? (
          <>
            <p class="error">{shown(current.why)}</p>
            <p>This page connects again by itself when the server is back at the same address.</p>
          </>
        ) : current.unplugged ? (
          <p>{isBack.value ? `${current.place.label} is plugged in again.` : `Plug ${current.place.label} in again. This page recognises it by its USB ids.`}</p>
        ) : (
          <p class="error">{shown(current.why)}</p>
        )}
        <div class="buttons">
          <button type="button" class="primary" onClick={() => void reconnect()}>
            Reconnect
          </button>
          <button type="button" onClick={() => disconnect()}>
            Choose another connection
          </button>
        </div>
        {refusal.value && <Refusal />}
        {current.place.kind === 'socket' && !current.isServerGone && <WhoHasIt />}
        {targetName(current.place).startsWith('serial:') && !current.unplugged && !current.isServerGone && <Ports only={targetName(current.place)} />}
      </section>
    );
  }
  const known = manifest.value;
  return (
    <section class="panel connected" aria-label="Connection">
      <div>
        <h2>
          {shown(known?.name ?? '')} <span class="quiet">{shown(known?.version ?? '')}</span>
        </h2>
        {known?.description && <p>{shown(known.description)}</p>}
        <p class="quiet">
          {place?.kind === 'serial' ? `Connected by Web Serial to ${place.label}. This page holds the port.` : `Connected through rigline web to ${shown(place?.label ?? '')}.`}
        </p>
        {place?.kind === 'socket' && targetName(place).startsWith('serial:') && <Ports only={targetName(place)} />}
        {place?.kind === 'socket' && <WhoHasIt />}
        <WhoIsHere />
      </div>
      <div class="buttons">
        <button type="button" onClick={() => disconnect()}>
          Disconnect
        </button>
        <button type="button" onClick={() => disconnect(true)}>
          Disconnect and keep outputs on
        </button>
      </div>
    </section>
  );
}

function Choices() {
  const server = info.value;
  return (
    <section class="panel" aria-label="Connection">
      <h2>Connect to a rig</h2>
      {server === undefined && <p>Asking the server …</p>}
      {isServed && token === null && <MissingToken />}
      {refusal.value && <Refusal />}
      {server?.target && (
        <div class="choice">
          <p>The server of this page has one target: {shown(server.target)}.</p>
          <button type="button" class="primary" onClick={() => connect({ kind: 'socket', target: null, label: server.target ?? '' })}>
            Connect to {oneLine(server.target, 60)}
          </button>
        </div>
      )}
      {server && server.target === null && <Ports choose />}
      <WebSerial />
    </section>
  );
}

function Refusal() {
  return (
    <p class="error" role="alert">
      The server of this page cannot be used: {shown(refusal.value ?? '')}. Open the address that rigline web printed when it was started last. With
      --keep-token, the token stays the same.
    </p>
  );
}

/** The address is that of a server, and lacks its token. */
function MissingToken() {
  const id = useId();
  const [text, setText] = useState('');
  const given = /^[!-~]+$/.exec(text.trim().replace(/^.*#(?:.*&)?token=/, '').replace(/&.*$/, ''))?.[0];
  const open = (event: Event) => {
    event.preventDefault();
    if (given) location.hash = `#token=${given}`;
  };
  return (
    <form class="missing" onSubmit={open}>
      <p class="error" role="alert">This address lacks the token of its server, so the page can ask the server for nothing.</p>
      <p>
        The whole address ends in <code>#token=…</code>. <code>rigline web</code> prints it when it starts: it stands in the terminal or in the log of the
        service that started it.
      </p>
      <div class="field">
        <label for={id}>The token, or the whole address</label>
        <input id={id} type="text" autocomplete="off" spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </div>
      <button type="submit" disabled={!given}>
        Use this token
      </button>
    </form>
  );
}

/** The serial ports of the server's machine, and who holds them. */
function Ports({ choose = false, only }: { choose?: boolean; only?: string }) {
  const [ports, setPorts] = useState<Port[] | null>(null);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    let live = true;
    const load = async () => {
      if (document.hidden || !info.value) return;
      try {
        const found = await ask<Port[]>('api/ports');
        if (live) [setPorts(found), setError(null)];
      } catch (problem) {
        if (live) setError(messageOf(problem));
      }
    };
    void load();
    const timer = setInterval(load, 3000);
    return () => {
      live = false;
      clearInterval(timer);
    };
  }, []);
  if (error) return <p class="error">The list of ports cannot be read: {shown(error)}</p>;
  if (!ports) return null;
  const wanted = only?.replace(/^serial:/, '').replace(/\?.*$/, '');
  const listed = wanted === undefined || wanted === 'auto' ? ports.filter((port) => wanted !== 'auto' || port.rigline) : ports.filter((port) => port.port === wanted);
  const holders = (port: Port) => {
    const held = port.held_by.map((holder) => shown(holder));
    if (port.sessions) held.push(plural(port.sessions, 'session of this server', 'sessions of this server'));
    return held.length === 0 ? 'nobody' : held.join(', ');
  };
  if (!choose && listed.length === 0) return null;
  return (
    <div class="ports">
      {choose && <p>Plugged into the machine that serves this page:</p>}
      <table>
        <thead>
          <tr>
            <th scope="col">Port</th>
            <th scope="col">Device</th>
            <th scope="col">Held by</th>
            {choose && <th scope="col">Connect</th>}
          </tr>
        </thead>
        <tbody>
          {choose && (
            <tr>
              <td>sim</td>
              <td>The simulated rig</td>
              <td data-name="Held by">nobody</td>
              <td>
                <button type="button" class="small primary" onClick={() => connect({ kind: 'socket', target: 'sim', label: 'sim' })}>
                  Connect to sim
                </button>
              </td>
            </tr>
          )}
          {listed.map((port) => (
            <tr key={port.port}>
              <td>{shown(port.port)}</td>
              <td>{port.usb ? shown([port.usb.manufacturer, port.usb.product, port.usb.serial_number].filter(Boolean).join(' ')) : 'unknown'}</td>
              <td data-name="Held by">{holders(port)}</td>
              {choose && (
                <td>
                  <button type="button" class="small" onClick={() => connect({ kind: 'socket', target: `serial:${port.port}`, label: port.port })}>
                    Connect to {shown(port.port)}
                  </button>
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function WebSerial() {
  const [ports, setPorts] = useState<SerialPort[]>([]);
  const [error, setError] = useState<string | null>(null);
  const hasSerial = 'serial' in navigator;
  useEffect(() => {
    if (!hasSerial) return;
    const load = () => void navigator.serial.getPorts().then(setPorts, (problem) => setError(messageOf(problem)));
    load();
    navigator.serial.addEventListener('connect', load);
    navigator.serial.addEventListener('disconnect', load);
    return () => {
      navigator.serial.removeEventListener('connect', load);
      navigator.serial.removeEventListener('disconnect', load);
    };
  }, []);
  if (!isSecureContext) {
    return <p class="quiet">Web Serial needs a page that came by https, or from this computer.</p>;
  }
  if (!hasSerial) {
    return <p class="quiet">This browser has no Web Serial, so this page cannot open a board by itself. Chrome, Edge and Opera can.</p>;
  }
  const choose = async () => {
    setError(null);
    try {
      await connect(serialPlace(await navigator.serial.requestPort()));
    } catch (problem) {
      // Nobody chose one: that is not an error.
      if (!(problem instanceof Error && problem.name === 'NotFoundError')) setError(messageOf(problem));
    }
  };
  const present = ports.filter((port) => (port as SerialPort & { connected?: boolean }).connected !== false);
  return (
    <div class="choice">
      <p>A board that is plugged into this computer, without a server, by Web Serial:</p>
      <div class="buttons">
        {present.map((port, at) => (
          <button type="button" class={info.value ? '' : 'primary'} key={at} onClick={() => connect(serialPlace(port))}>
            Connect to {usbName(port.getInfo())}
          </button>
        ))}
        <button type="button" onClick={choose}>
          Choose a port …
        </button>
      </div>
      {error && (
        <p class="error" role="alert">
          {shown(error)}
        </p>
      )}
    </div>
  );
}

// Operations and their forms

function Operations() {
  const all = manifest.value?.operations ?? [];
  const id = useId();
  const [wanted, setWanted] = useState('');
  useEffect(() => void learn(), [manifest.value, ready.value]);
  const current = all.find((operation) => operation.name === chosen.value) ?? all[0];
  const listed = all.filter((operation) => `${operation.name} ${operation.description}`.toLowerCase().includes(wanted.toLowerCase()));
  if (!current) return <section class="panel">This extension has no operations.</section>;
  return (
    <div class="operations">
      <nav class="panel list" aria-label="Operations">
        <h2>Operations</h2>
        {all.length > 12 && <input type="search" aria-label="Find an operation" placeholder="Find" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} />}
        <ul>
          {listed.slice(0, 500).map((operation, at) => (
            <li key={operation.name}>
              <button
                type="button"
                aria-current={operation === current ? 'true' : undefined}
                aria-describedby={operation.description ? `${id}-${at}` : undefined}
                onClick={() => choose(operation.name)}
              >
                {oneLine(operation.name, 100)}
              </button>
              {operation.description && (
                <span class="what" id={`${id}-${at}`}>
                  {oneLine(operation.description, 140)}
                </span>
              )}
            </li>
          ))}
        </ul>
        {listed.length > 500 && <p class="quiet">{plural(listed.length - 500, 'more operation')}. Type a part of the name.</p>}
      </nav>
      <OperationForm key={current.name} operation={current} />
    </div>
  );
}

function timeoutOf(text: string): number | null {
  const seconds = text.trim() === '' ? 30 : Number(text);
  return Number.isFinite(seconds) && seconds > 0 && seconds <= 86_400 ? seconds : null;
}

function OperationForm({ operation }: { operation: Operation }) {
  const id = useId();
  const [errors, setErrors] = useState<Map<string, string>>(new Map());
  const [latest, setLatest] = useState<number | null>(null);
  const form = useRef<HTMLFormElement>(null);
  const draft = drafts.value.get(operation.name) ?? {};
  const limit = timeouts.value.get(operation.name) ?? '';
  const call = calls.value.find((one) => one.number === latest) ?? calls.value.find((one) => one.operation === operation.name);
  const isBusy = call?.status === 'running' || call?.status === 'waiting';
  const fromExtension = refused.value?.operation === operation.name ? refused.value.errors : null;
  const all = fromExtension && errors.size === 0 ? fromExtension : errors;

  /** The arguments, if all are right; else the first wrong field gets the focus. */
  const checked = (): { args: string; timeout: number } | null => {
    refused.value = null;
    const { json, errors: found } = collect(operation.params, draft);
    const timeout = timeoutOf(limit);
    if (timeout === null) found.set('(timeout)', 'The timeout must be more than 0 and at most 86400 seconds.');
    const most = manifest.value?.requestLimit;
    if (json !== null && most && new TextEncoder().encode(json).length + 200 > most) found.set('(timeout)', `The arguments are too long: a request may have ${most} bytes.`);
    setErrors(found);
    if (found.size === 0 && json !== null && timeout !== null) return { args: json, timeout };
    // When the errors are drawn, and before anything else happens: a focus that moves the page during the next click would lose it.
    queueMicrotask(() => form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus());
    return null;
  };
  const submit = (event: Event) => {
    event.preventDefault();
    const said = checked();
    if (said) setLatest(run(operation.name, said.args, said.timeout).number);
  };
  // The result of a call is in sight of the button that asked for it, however long the form is.
  const outcome = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (latest === null || call?.number !== latest) return;
    const element = outcome.current;
    if (!element) return;
    const { top, bottom } = element.getBoundingClientRect();
    if (top < 60 || Math.min(bottom, top + 120) > innerHeight) element.scrollIntoView({ block: bottom - top > innerHeight - 80 ? 'start' : 'nearest' });
  }, [latest, call?.status]);
  useEffect(() => {
    if (call?.status !== 'refused' || call.number !== latest) return;
    const named = namedArgument(call.message);
    if (named) refused.value = { operation: operation.name, errors: new Map([[named.path, named.why]]) };
  }, [call?.status, call?.number]);

  return (
    <section class="panel form" aria-labelledby={`${id}-name`}>
      <h2 id={`${id}-name`}>{oneLine(operation.name, 1000)}</h2>
      {operation.description && <p>{shown(operation.description)}</p>}
      <div class="sides">
      <form ref={form} onSubmit={submit} noValidate>
        <Arguments id={`${id}-of`} schema={operation.params} draft={draft} errors={all} onChange={(next) => setDraft(operation.name, next)} />
        <div class="field short">
          <label for={`${id}-timeout`}>
            Timeout <span class="kind">seconds, optional</span>
          </label>
          <input
            id={`${id}-timeout`}
            type="text"
            inputMode="decimal"
            autocomplete="off"
            placeholder="30"
            value={limit}
            aria-invalid={all.has('(timeout)') ? true : undefined}
            aria-describedby={all.has('(timeout)') ? `${id}-timeout-error` : undefined}
            onInput={(event) => (timeouts.value = new Map(timeouts.value).set(operation.name, event.currentTarget.value))}
          />
          {all.has('(timeout)') && (
            <div class="error" id={`${id}-timeout-error`} role="alert">
              {all.get('(timeout)')}
            </div>
          )}
        </div>
        <div class="buttons">
          <button type="submit" class="primary" disabled={!ready.value || isBusy}>
            Run {oneLine(operation.name, 40)}
          </button>
          {call && isBusy && (
            <button type="button" onClick={() => cancel(call.number)}>
              Cancel
            </button>
          )}
          <CopyAs operation={operation} said={checked} />
        </div>
      </form>
        {call && (
          <div class="outcome" ref={outcome}>
            <Result call={call} />
          </div>
        )}
      </div>
    </section>
  );
}

function CopyAs({ operation, said }: { operation: Operation; said: () => { args: string; timeout: number } | null }) {
  const id = useId();
  const [text, setText] = useState<string | null>(null);
  const [note, setNote] = useState('');
  const field = useRef<HTMLTextAreaElement>(null);
  const choose = async (as: As) => {
    const given = said();
    setNote('');
    if (!given) return setText(null);
    const place = placeOf(state.value);
    const server = place?.kind === 'socket' ? { call: callAddress(place.target), token: token ?? '' } : null;
    const made = copyAs(as, { ...given, operation: operation.name, schema: operation.params, target: targetName(place), server });
    setText(made);
    try {
      await navigator.clipboard.writeText(made);
      setNote('Copied.');
    } catch {
      setNote('This browser does not let the page copy. The text is selected: copy it yourself.');
      field.current?.select();
    }
  };
  return (
    <div class="copy">
      <label for={id} class="sr">
        Copy this call as
      </label>
      <select
        id={id}
        value=""
        onChange={(event) => {
          const as = event.currentTarget.value as As;
          event.currentTarget.value = '';
          void choose(as);
        }}
      >
        <option value="">Copy as …</option>
        {KINDS.map(([as, name]) => (
          <option key={as} value={as}>
            {name}
          </option>
        ))}
      </select>
      {text !== null && (
        <div class="copied">
          <textarea ref={field} readOnly rows={3} aria-label="The call as text" spellcheck={false} value={text} />
          <p role="status">{note}</p>
        </div>
      )}
    </div>
  );
}

// Results

function Result({ call }: { call: Call }) {
  void traffic.value;
  const own = call.milliseconds === null ? [...logs].filter((entry) => entry.call === call.number) : call.logs;
  return (
    <div class="result" aria-label={`Result of call ${call.number}`} role="group">
      <h3>
        <Badge call={call} /> {call.milliseconds !== null && <span class="quiet">after {milliseconds(call.milliseconds)}</span>}
        {call.waited >= 1 && call.milliseconds !== null && <span class="quiet">, having waited {milliseconds(call.waited)} for another client</span>}
      </h3>
      {call.message && <p class={call.status === 'done' || call.status === 'cancelled' ? 'message' : 'message error'}><Said text={call.message} /></p>}
      {call.outputs.length > 0 && (
        <div class="scroll" tabIndex={0} role="group" aria-label="Outputs">
          <table class="outputs">
            <caption class="sr">Outputs</caption>
            <thead>
              <tr>
                <th scope="col">Output</th>
                <th scope="col">Value</th>
              </tr>
            </thead>
            <tbody>
              {call.outputs.map(([name, value]) => (
                <tr key={name}>
                  <th scope="row">{oneLine(name, 200)}</th>
                  <td class="value">
                    <Said text={value.length > 10_000 ? `${value.slice(0, 10_000)}…` : value} />
                    {'value' in reading(value) && <Follow call={call} output={name} text={value} />}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {call.droppedOutputs > 0 && <p class="quiet">{plural(call.droppedOutputs, 'more output')}.</p>}
        </div>
      )}
      {own.length > 0 && <Logs label={`Logs of call ${call.number}`} entries={own} id={`logs-${call.number}`} />}
    </div>
  );
}

/** What can be done with a number. The words stand in the style sheet: the cell's text is the value alone. */
function Follow({ call, output, text }: { call: Call; output: string; text: string }) {
  const name = oneLine(output, 60);
  const isPinned = readings.isPinned(call.operation, call.args, output);
  return (
    <span class="follow">
      <button
        type="button"
        class="small"
        data-word="Plot"
        aria-label={`Plot ${name}`}
        onClick={() => {
          poll.plot(call.operation, call.args, output, call.outputs);
          show('plots');
        }}
      />
      <button type="button" class="small" data-word={isPinned ? 'Pinned' : 'Pin'} aria-label={isPinned ? `Pinned ${name}` : `Pin ${name}`} disabled={isPinned} onClick={() => readings.pin(call.operation, call.args, output, text)} />
    </span>
  );
}

function Badge({ call }: { call: { status: Call['status']; holder: string | null } }) {
  return <span class={`badge ${call.status}`}>{call.status === 'waiting' && call.holder !== null ? `waiting for ${oneLine(call.holder, 60)}` : words(call.status)}</span>;
}

function History() {
  const [open, setOpen] = useState<number | null>(null);
  const again = (call: Call) => {
    fill(call.operation, call.args);
    run(call.operation, call.args, call.timeout);
  };
  return (
    <section class="panel" aria-labelledby="history-title">
      <h2 id="history-title">History</h2>
      <div class="scroll history" tabIndex={0} role="group" aria-label="Calls">
        <table>
          <thead>
            <tr>
              <th scope="col">Call</th>
              <th scope="col">Arguments</th>
              <th scope="col">Result</th>
              <th scope="col">Time</th>
              <th scope="col" class="act">
                Again
              </th>
            </tr>
          </thead>
          <tbody>
            {calls.value.map((call) => (
              <tr key={call.number}>
                <th scope="row">
                  <button type="button" class="twist" aria-expanded={open === call.number} onClick={() => setOpen(open === call.number ? null : call.number)}>
                    {call.number}. {oneLine(call.operation, 60)}
                  </button>
                </th>
                <td class="value">{oneLine(call.args, 120)}</td>
                <td>
                  <Badge call={call} /> <Said text={call.message} line={120} />
                </td>
                <td class="number">{call.milliseconds === null ? '' : milliseconds(call.milliseconds)}</td>
                <td class="act">
                  <button type="button" class="small" disabled={!ready.value} onClick={() => again(call)} aria-label={`Run again: call ${call.number}, ${oneLine(call.operation, 60)}`}>
                    Run again
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {calls.value.filter((call) => call.number === open).map((call) => <Result key={call.number} call={call} />)}
    </section>
  );
}
