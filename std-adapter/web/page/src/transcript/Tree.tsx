import { useMemo, useState } from 'preact/hooks';
import { plural, shown } from '../text';

/** A number as it stands in the text. */
class Digits {
  constructor(readonly text: string) {}
}

const LISTED = 200;

/** JSON as a tree. What cannot be parsed is shown as it is. */
export function Tree({ raw }: { raw: string }) {
  const value = useMemo(() => {
    try {
      const keep = (_: string, one: unknown, context?: { source?: string }) => (typeof one === 'number' ? new Digits(context?.source ?? String(one)) : one);
      return { is: JSON.parse(raw, keep as (key: string, value: unknown) => unknown) as unknown };
    } catch {
      return null;
    }
  }, [raw]);
  if (value === null) return <pre class="raw">{shown(raw)}</pre>;
  return (
    <ul class="tree">
      <Node name={null} value={value.is} depth={0} />
    </ul>
  );
}

function Node({ name, value, depth }: { name: string | null; value: unknown; depth: number }) {
  const [isOpen, setOpen] = useState(depth < 3);
  const [listed, setListed] = useState(LISTED);
  const label = name === null ? null : <span class="key">{shown(name.length > 300 ? `${name.slice(0, 300)}…` : name)}: </span>;
  if (typeof value !== 'object' || value === null || value instanceof Digits) {
    return (
      <li>
        {label}
        <span class={`value ${value === null ? 'null' : value instanceof Digits ? 'number' : typeof value}`}>{leaf(value)}</span>
      </li>
    );
  }
  const entries: [string, unknown][] = Array.isArray(value) ? value.map((one, at) => [String(at), one]) : Object.entries(value);
  const size = Array.isArray(value) ? `${plural(entries.length, 'entry', 'entries')}` : plural(entries.length, 'member');
  return (
    <li>
      <button type="button" class="twist" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        {label ?? <span class="key">{Array.isArray(value) ? 'list' : 'object'} </span>}
        <span class="quiet">{size}</span>
      </button>
      {isOpen && (
        <ul>
          {entries.slice(0, listed).map(([key, below]) => (
            <Node key={key} name={key} value={below} depth={depth + 1} />
          ))}
          {entries.length > listed && (
            <li>
              <button type="button" class="small" onClick={() => setListed(listed + LISTED)}>
                Show more of {entries.length - listed}
              </button>
            </li>
          )}
        </ul>
      )}
    </li>
  );
}

function leaf(value: unknown): string {
  if (value instanceof Digits) return value.text;
  if (typeof value !== 'string') return String(value);
  return shown(value.length > 5000 ? `${value.slice(0, 5000)}… (${value.length - 5000} more characters)` : value);
}
