import { signal } from '@preact/signals';

/** The server's answers to questions that are not a session's. */
export interface Info {
  version: string;
  target: string | null;
  evals: boolean;
  /** The target is a rig of the lab. */
  lab?: boolean;
}

export interface Port {
  port: string;
  rigline: boolean;
  usb: { vendor_id: number; product_id: number; manufacturer?: string | null; product?: string | null; serial_number?: string | null } | null;
  held_by: string[];
  sessions?: number;
}

export const VIEWS = ['live', 'plots', 'transcript', 'evals'] as const;
export type View = (typeof VIEWS)[number];

/** What the address's fragment says. */
export const hash = () => new URLSearchParams(location.hash.slice(1));

/** The address's fragment holds the token, which is sent to no server by itself, and the view. */
export const token: string | null = hash().get('token');
export const view = signal<View>(viewOf());
/** What the server is; null: this page came from a plain web server. Undefined: not known yet. */
export const info = signal<Info | null | undefined>(undefined);

function viewOf(): View {
  const named = hash().get('view');
  return VIEWS.find((name) => name === named) ?? 'live';
}

export function show(next: View): void {
  if (next === view.value) return;
  view.value = next;
  // The button Back leads to the view before, and does not end the session.
  setHash({ view: next }, true);
}

/** Changes parts of the address, null: removes them. `isNew` has the button Back lead to the address as it was. */
export function setHash(changed: Record<string, string | null>, isNew: boolean): void {
  const parts = hash();
  for (const [name, value] of Object.entries(changed)) {
    if (value === null) parts.delete(name);
    else parts.set(name, value);
  }
  const next = `#${parts}`;
  if (next === location.hash) return;
  try {
    if (isNew) history.pushState(null, '', next);
    else history.replaceState(null, '', next);
  } catch {
    // The browser has had too many changes within a short time: the next one tries again.
  }
}

addEventListener('popstate', () => (view.value = viewOf()));

addEventListener('hashchange', () => {
  // Another token is for another server.
  if (hash().get('token') !== token) location.reload();
  else view.value = viewOf();
});

class Refused extends Error {}

export async function ask<T>(path: string): Promise<T> {
  const answer = await fetch(new URL(path, document.baseURI), {
    headers: { authorization: `Bearer ${token ?? ''}` },
    cache: 'no-store',
    signal: AbortSignal.timeout(15_000),
  });
  if (answer.ok) return (await answer.json()) as T;
  const body = (await answer.json().catch(() => null)) as { error?: unknown } | null;
  const why = typeof body?.error === 'string' ? body.error : `the server answered with status ${answer.status}`;
  throw new Refused(why);
}

export function socketAddress(path: string, more: Record<string, string> = {}): URL {
  const address = new URL(path, document.baseURI);
  address.protocol = address.protocol === 'https:' ? 'wss:' : 'ws:';
  address.hash = '';
  address.search = new URLSearchParams({ token: token ?? '', ...more }).toString();
  return address;
}

/** Where the server takes one call over HTTP. */
export function callAddress(target: string | null): URL {
  const address = new URL('api/call', document.baseURI);
  address.hash = '';
  address.search = target === null ? '' : new URLSearchParams({ target }).toString();
  return address;
}

/**
 * Asks for the server until it answers, `isOver` says so, or it refuses this page. Says whether it was there all the time, or is back. `onGone` is told once that it
 * does not answer.
 */
export async function watchServer(isOver: () => boolean, onGone: () => void): Promise<'there' | 'back' | 'refused'> {
  let wasGone = false;
  for (let pause = 500; ; pause = Math.min(3000, pause * 1.5)) {
    try {
      const found = await ask<Info>('api/info');
      info.value = found;
      refusal.value = null;
      return wasGone ? 'back' : 'there';
    } catch (error) {
      if (error instanceof Refused) {
        refusal.value = error.message;
        return 'refused';
      }
      if (!wasGone) onGone();
      wasGone = true;
    }
    if (isOver()) return 'there';
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (isOver()) return 'there';
  }
}

/** Whether a server of rigline serves this page: without a token there is no other way to know. */
export const isServed = document.querySelector('meta[name="rigline-server"]') !== null;

/** Asks what serves this page. */
export async function greet(): Promise<void> {
  if (token === null) {
    info.value = null;
    return;
  }
  try {
    info.value = await ask<Info>('api/info');
  } catch (error) {
    refusal.value = error instanceof Refused ? error.message : 'the server does not answer';
    info.value = null;
  }
}

/** Why the server did not say what it is, although the address has a token. */
export const refusal = signal<string | null>(null);
