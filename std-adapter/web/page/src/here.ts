/** What this browser keeps for this page: in the tab over a reload, or for all tabs. What cannot be kept lasts as long as the page. */

const PREFIX = 'rigline:';
/** The longest text that is kept, in characters. */
const LIMIT = 2 << 20;

function storage(forAllTabs: boolean): Storage | null {
  try {
    return forAllTabs ? localStorage : sessionStorage;
  } catch {
    return null;
  }
}

export function kept(name: string, forAllTabs = false): unknown {
  try {
    const text = storage(forAllTabs)?.getItem(PREFIX + name);
    return typeof text === 'string' ? (JSON.parse(text) as unknown) : undefined;
  } catch {
    return undefined;
  }
}

/** Keeps a value; returns whether it could. */
export function keep(name: string, value: unknown, forAllTabs = false): boolean {
  try {
    const text = JSON.stringify(value);
    if (text.length > LIMIT) return false;
    storage(forAllTabs)?.setItem(PREFIX + name, text);
    return true;
  } catch {
    return false;
  }
}

export function forget(name: string, forAllTabs = false): void {
  try {
    storage(forAllTabs)?.removeItem(PREFIX + name);
  } catch {
    // There is nothing to forget.
  }
}

const pending = new Map<string, () => void>();
let timer = 0;

/** Has something kept soon, and at the latest when the page goes. */
export function later(name: string, act: () => void): void {
  pending.set(name, act);
  if (timer === 0) timer = window.setTimeout(flush, 300);
}

function flush(): void {
  clearTimeout(timer);
  timer = 0;
  for (const act of pending.values()) act();
  pending.clear();
}

addEventListener('pagehide', flush);
addEventListener('visibilitychange', () => document.visibilityState === 'hidden' && flush());
