import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { token } from './address';
import { requiredOf } from './schema';
import { type Call, type Operation, calls, cancel, manifest, name, placeOf, renew, run, state, whenReady } from './session';
import { clock, messageOf, oneLine } from './text';

/** What the last press of the button has done. */
const done = signal<{ text: string; isGood: boolean | null } | null>(null);
const isBusy = signal(false);

/** Names of operations that switch everything off. */
const NAMES = /^(?:(?:all|everything|outputs|rails)[-_ ]?off|off[-_ ]?all|(?:make[-_ ]?)?safe(?:[-_ ]?state)?|emergency[-_ ]?(?:stop|off)|e[-_ ]?stop)$/i;

function operation(): Operation | null {
  return manifest.value?.operations.find((one) => NAMES.test(one.name) && requiredOf(one.params).length === 0) ?? null;
}

/** The button that brings the rig into its safe state, for an extension that has one, or an operation for that. */
export function EverythingOff() {
  const known = manifest.value;
  const own = operation();
  useEffect(() => {
    done.value = null;
  }, [known?.name]);
  if (known === null || state.value.at === 'idle' || (!known.hasSafeState && own === null)) return null;
  const press = async () => {
    if (isBusy.value) return;
    isBusy.value = true;
    done.value = { text: 'Switching everything off …', isGood: null };
    try {
      done.value = known.hasSafeState ? await bySafeState() : await byOperation(own as Operation);
    } catch (error) {
      done.value = { text: `${clock(Date.now())}: It is not known whether anything is off: ${oneLine(messageOf(error), 200)}.`, isGood: false };
    } finally {
      isBusy.value = false;
    }
  };
  return (
    <div class="off">
      <button type="button" class="danger" onClick={() => void press()} aria-busy={isBusy.value}>
        Everything off
      </button>
      <span role="status" class={done.value?.isGood === false ? 'bad' : 'quiet'}>
        {done.value?.text}
      </span>
    </div>
  );
}

/** Ends the session with the rig, which then runs its safe state. Who else uses it has its calls cancelled. */
async function bySafeState(): Promise<{ text: string; isGood: boolean }> {
  const place = placeOf(state.value);
  const ended = 'All calls were cancelled, and the session with the rig was ended, at which the rig runs its safe state.';
  if (place?.kind === 'serial') {
    const isOpen = await renew();
    return said(isOpen ? `${ended} It answers again.` : `${ended} There is no new session yet.`, isOpen);
  }
  const address = new URL('api/off', document.baseURI);
  address.hash = '';
  address.search = new URLSearchParams({ name: name.value, ...(place?.target ? { target: place.target } : {}) }).toString();
  const answer = await fetch(address, { method: 'POST', headers: { authorization: `Bearer ${token ?? ''}` }, signal: AbortSignal.timeout(60_000) });
  const body = (await answer.json().catch(() => ({}))) as { ended?: unknown; error?: unknown };
  const error = typeof body.error === 'string' ? body.error : null;
  if (body.ended !== true) throw new Error(error ?? `the server answered with status ${answer.status}`);
  return said(error === null ? `${ended} It answers again.` : `${ended} It does not answer again: ${oneLine(error, 200)}.`, error === null);
}

/** Calls the operation, before anything else of this page. */
async function byOperation({ name: own }: Operation): Promise<{ text: string; isGood: boolean }> {
  const out = calls.value.filter(isOut);
  for (const call of out) cancel(call.number);
  for (const call of out) await end(call.number);
  if (!(await whenReady(15_000))) throw new Error('there is no connection');
  const over = await end(run(own, '{}', 30).number);
  const isGood = over.status === 'done';
  return said(`${oneLine(own, 60)} ${isGood ? 'succeeded' : 'did not succeed'}${over.message ? `: ${oneLine(over.message, 200)}` : '.'}`, isGood);
}

function isOut(call: Call): boolean {
  return call.status === 'waiting' || call.status === 'running';
}

/** Waits until a call is over. */
function end(number: number): Promise<Call> {
  return new Promise((resolve) => {
    const stop = calls.subscribe((all) => {
      const call = all.find((one) => one.number === number);
      if (call && !isOut(call)) queueMicrotask(() => (stop(), resolve(call)));
    });
  });
}

function said(text: string, isGood: boolean): { text: string; isGood: boolean } {
  return { text: `${clock(Date.now()).slice(0, 8)}: ${text}`, isGood };
}
