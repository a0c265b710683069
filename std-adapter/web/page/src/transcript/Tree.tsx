import { useMemo, useState } from 'preact/hooks';
import { Digits, parseExact } from '../exact';
import { cut, oneLine, plural, shown } from '../text';

const LISTED = 200;

/** JSON as a tree. What cannot be parsed is shown as it is. */
export function Tree({ raw }: { raw: string }) {
  const value = useMemo(() => {
    try {
      return { is: parseExact(raw) };
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
  const label = name === null ? null : <span class="key">{oneLine(name, 300)}: </span>;
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
  return typeof value === 'string' ? shown(cut(value, 5000)) : String(value);
}
