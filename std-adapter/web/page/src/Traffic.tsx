import { useMemo, useState } from 'preact/hooks';
import { plain } from './ansi';
import { Matching } from './matching';
import { Said } from './Said';
import { type Line, type LogEntry, clearLogs, lines, logs, placeOf, state, targetName, traffic } from './session';
import { clock, oneLine, plural, save } from './text';
import { VirtualList } from './VirtualList';

/** How high a list is, in pixels. */
const LIST = 210;

type Level = LogEntry['level'];
const LEVELS: Level[] = ['debug', 'info', 'warn', 'error'];
const LEVEL_NAMES: [Level, string][] = [
  ['debug', 'all levels'],
  ['info', 'info and above'],
  ['warn', 'warnings and errors'],
  ['error', 'errors only'],
];

/** All logs and lines of the session: searched, copied and saved. */
export function Traffic() {
  void traffic.value;
  const [what, setWhat] = useState<'logs' | 'lines'>('logs');
  const [at, setAt] = useState(-1);
  const [text, setText] = useState<string | null>(null);
  const [wanted, setWanted] = useState('');
  const [level, setLevel] = useState<Level>('debug');
  const [note, setNote] = useState('');
  const ring = what === 'logs' ? logs : lines;
  const found = useMemo(() => {
    const letters = wanted.toLowerCase();
    const has = (text: string) => letters === '' || plain(text).toLowerCase().includes(letters);
    const least = LEVELS.indexOf(level);
    return what === 'logs'
      ? new Matching<LogEntry | Line>(logs, (entry) => LEVELS.indexOf((entry as LogEntry).level) >= least && has((entry as LogEntry).message))
      : new Matching<LogEntry | Line>(lines, (line) => has((line as Line).text) || ((line as Line).fault !== null && has((line as Line).fault as string)));
  }, [what, wanted, level]).refresh();
  const isFiltered = wanted !== '' || (what === 'logs' && level !== 'debug');
  const look = (which: 'logs' | 'lines') => {
    setWhat(which);
    forget();
  };
  const forget = () => {
    setAt(-1);
    setText(null);
    setNote('');
  };
  /** Rows are one line high: the chosen one is shown whole below the list. */
  const choose = (index: number) => {
    setAt(index);
    const one = found.at(index);
    const whole = one === undefined ? undefined : 'message' in one ? one.message : one.text;
    setText(whole === undefined ? null : whole.length > 100_000 ? `${whole.slice(0, 100_000)}…` : whole);
  };
  const record = () => {
    const first = lines.at(0)?.time ?? 0;
    const all = [...lines].map((line) => `${JSON.stringify({ ms: line.time - first, [line.direction]: line.text })}\n`);
    save('session.jsonl', 'application/x-ndjson', `${JSON.stringify({ rigline: 'transcript', version: 1, target: targetName(placeOf(state.value)) })}\n`, ...all);
  };
  const texts = () => [...found].map((one) => `${asText(one)}\n`);
  const copy = async () => {
    const all = texts();
    try {
      await navigator.clipboard.writeText(all.join(''));
      setNote(`${plural(all.length, 'line')} copied.`);
    } catch {
      setNote('This browser does not let the page copy. “Save as text” has the same lines.');
    }
  };
  return (
    <section class="panel" aria-labelledby="traffic-title">
      <div class="bar">
        <h2 id="traffic-title">{what === 'logs' ? 'Logs' : 'Lines'}</h2>
        <div class="buttons">
          <button type="button" class="small" aria-pressed={what === 'logs'} onClick={() => look('logs')}>
            Logs
          </button>
          <button type="button" class="small" aria-pressed={what === 'lines'} onClick={() => look('lines')}>
            Lines
          </button>
          <button type="button" class="small" onClick={() => (clearLogs(), forget())}>
            Clear
          </button>
          <button type="button" class="small" disabled={found.length === 0} onClick={() => void copy()}>
            Copy
          </button>
          <button type="button" class="small" disabled={found.length === 0} onClick={() => save(what === 'logs' ? 'logs.txt' : 'lines.txt', 'text/plain', ...texts())}>
            Save as text
          </button>
          <button type="button" class="small" onClick={record}>
            Save as transcript
          </button>
        </div>
      </div>
      <div class="filters">
        <input
          type="search"
          aria-label={what === 'logs' ? 'Search the log' : 'Search the traffic'}
          placeholder="Search"
          value={wanted}
          onInput={(event) => {
            setWanted(event.currentTarget.value);
            forget();
          }}
        />
        {what === 'logs' && (
          <select
            aria-label="Level"
            value={level}
            onChange={(event) => {
              setLevel(event.currentTarget.value as Level);
              forget();
            }}
          >
            {LEVEL_NAMES.map(([name, said]) => (
              <option key={name} value={name}>
                {said}
              </option>
            ))}
          </select>
        )}
      </div>
      <p class="quiet" data-count={ring.length} data-matching={found.length}>
        {isFiltered && `${found.length.toLocaleString('en')} of `}
        {plural(ring.length, 'line')}
        {isFiltered && (found.length === 1 ? ' matches' : ' match')}
        {ring.dropped > 0 && `. ${plural(ring.dropped, 'older line was dropped', 'older lines were dropped')}`}.{note && ` ${note}`}
      </p>
      {found.length === 0 ? (
        <p class="empty short-empty">{isFiltered && ring.length > 0 ? 'No line matches.' : what === 'logs' ? 'The rig has logged nothing yet.' : 'No line has passed yet.'}</p>
      ) : what === 'logs' ? (
        <VirtualList id="logs" label="Logs" most={LIST} count={found.length} rowHeight={26} follow selected={at} onSelect={choose} row={(index) => <LogRow entry={found.at(index) as LogEntry | undefined} />} />
      ) : (
        <VirtualList id="lines" label="Lines" most={LIST} count={found.length} rowHeight={26} follow selected={at} onSelect={choose} row={(index) => <LineRow line={found.at(index) as Line | undefined} />} />
      )}
      {text !== null && (
        <pre class="raw whole" tabIndex={0} role="group" aria-label="The chosen line">
          <Said text={text} />
        </pre>
      )}
    </section>
  );
}

function asText(one: LogEntry | Line): string {
  const time = new Date(one.time).toISOString();
  return 'message' in one ? `${time} ${one.level} ${plain(one.message)}` : `${time} ${one.direction} ${one.fault ? `(${one.fault}) ` : ''}${plain(one.text)}`;
}

/** The logs of one call. */
export function Logs({ label, entries, id }: { label: string; entries: LogEntry[]; id: string }) {
  return <VirtualList id={id} label={label} most={LIST} count={entries.length} rowHeight={26} follow row={(index) => <LogRow entry={entries[index]} />} />;
}

function LogRow({ entry }: { entry: LogEntry | undefined }) {
  if (!entry) return null;
  return (
    <div class={`log ${entry.level}`}>
      <span class="time">{clock(entry.time)}</span> <span class="level">{entry.level}</span>{' '}
      <span class="text">
        <Said text={entry.message} line={400} />
      </span>
    </div>
  );
}

function LineRow({ line }: { line: Line | undefined }) {
  if (!line) return null;
  return (
    <div class={`log ${line.fault ? 'error' : ''}`}>
      <span class="time">{clock(line.time)}</span> <span class="level">{line.direction}</span>{' '}
      <span class="text">
        {line.fault && <b>{oneLine(line.fault)}: </b>}
        <Said text={line.text} line={400} />
      </span>
    </div>
  );
}
