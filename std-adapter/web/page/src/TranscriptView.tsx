import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { Said } from './Said';
import { bytes, milliseconds, oneLine, plural, shown } from './text';
import type { CardState, Detail, Filter, Part } from './transcript/protocol';
import * as store from './transcript/store';
import { Tree } from './transcript/Tree';
import { VirtualList } from './VirtualList';

const STATES: Record<CardState, string> = { open: 'no answer', ok: 'succeeded', error: 'failed', fault: 'damaged', other: 'no call' };

export function TranscriptView() {
  return store.name.value === null ? <Opening /> : <Transcript name={store.name.value} />;
}

function Opening() {
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const [isOver, setOver] = useState(false);
  const [text, setText] = useState('');
  const open = (file: File | undefined) => file && store.open(file, file.name);
  return (
    <section
      class={`panel drop${isOver ? ' over' : ''}`}
      aria-labelledby={`${id}-title`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        open(event.dataTransfer?.files[0]);
      }}
    >
      <h2 id={`${id}-title`}>Open a transcript</h2>
      <p>
        A recording of <code>rigline monitor --record</code>, a log of Amplifier events, or any file with a message on each line. It stays in this
        browser.
      </p>
      <div class="buttons">
        <button type="button" class="primary" onClick={() => input.current?.click()}>
          Open a file …
        </button>
        <span class="quiet">or drop one here</span>
      </div>
      <input ref={input} type="file" hidden aria-label="Transcript file" onChange={(event) => open(event.currentTarget.files?.[0])} />
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (text !== '') store.open(new Blob([text]), 'pasted text');
        }}
      >
        <label for={`${id}-text`}>Or paste lines</label>
        <textarea id={`${id}-text`} rows={6} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <button type="submit" disabled={text === ''}>
          Show the pasted lines
        </button>
      </form>
    </section>
  );
}

function Transcript({ name }: { name: string }) {
  const id = useId();
  const progress = store.progress.value;
  const filter = store.filter.value;
  const set = (change: Partial<Filter>) => store.setFilter(change);
  return (
    <section class="panel transcript" aria-labelledby={`${id}-title`}>
      <div class="bar">
        <h2 id={`${id}-title`}>{oneLine(name, 80)}</h2>
        <button type="button" onClick={store.close}>
          Open another
        </button>
      </div>
      {store.failure.value && (
        <p class="error" role="alert">
          The transcript cannot be read: {shown(store.failure.value)}
        </p>
      )}
      <p class="quiet" role="status" data-done={progress?.isDone ?? false}>
        {progress === null
          ? 'Reading …'
          : `${progress.isDone ? '' : `Reading, ${Math.floor((100 * progress.read) / Math.max(1, progress.size))} %: `}${plural(progress.cards, 'card')} from ${plural(progress.lines, 'line')}, ${bytes(progress.size)}${progress.target === null ? '' : `, recorded from ${oneLine(progress.target, 80)}`}${progress.faults > 0 ? `, ${plural(progress.faults, 'damaged line')}` : ''}.`}
      </p>
      <div class="filters" role="search">
        <Search onChange={(text) => set({ text })} />
        <label>
          <span class="sr">Show</span>
          <select value={filter.state} onChange={(event) => set({ state: event.currentTarget.value as Filter['state'] })}>
            <option value="all">all cards</option>
            <option value="error">failed calls</option>
            <option value="fault">damaged lines</option>
            <option value="open">calls without an answer</option>
            <option value="ok">calls that succeeded</option>
            <option value="logs">calls with logs</option>
            <option value="other">lines outside of calls</option>
          </select>
        </label>
        <label>
          <span class="sr">Operation or event</span>
          <select value={filter.name === null ? '' : String(filter.name)} onChange={(event) => set({ name: event.currentTarget.value === '' ? null : Number(event.currentTarget.value) })}>
            <option value="">every operation</option>
            {progress?.names.slice(0, 500).map((one, at) => (
              <option key={at} value={String(at)}>
                {oneLine(one, 80)}
              </option>
            ))}
          </select>
        </label>
        <span class="quiet" role="status" data-count={store.count.value}>
          {store.isSearching.value ? 'Searching …' : `${plural(store.count.value, 'card')} shown`}
        </span>
      </div>
      <div class={`split${store.selected.value >= 0 ? ' has-detail' : ''}`}>
        <VirtualList
          id="cards"
          label="Cards"
          class="cards"
          count={store.count.value}
          rowHeight={58}
          selected={store.selected.value}
          onSelect={store.select}
          onRange={store.look}
          row={(at) => <Row at={at} />}
        />
        <div class="detail" role="region" aria-label="The chosen card" tabIndex={0}>
          {store.selected.value < 0 ? <p class="empty">Choose a card.</p> : store.detail.value === null ? <p>Reading …</p> : <Card detail={store.detail.value} />}
        </div>
      </div>
    </section>
  );
}

function Search({ onChange }: { onChange: (text: string) => void }) {
  const [text, setText] = useState('');
  useEffect(() => {
    if (text === store.filter.value.text) return;
    const timer = setTimeout(() => onChange(text), 200);
    return () => clearTimeout(timer);
  }, [text]);
  return <input type="search" aria-label="Search in all lines" placeholder="Search" value={text} onInput={(event) => setText(event.currentTarget.value)} />;
}

function Row({ at }: { at: number }) {
  const row = store.rows.value.get(at);
  if (!row) return <span class="quiet">…</span>;
  return (
    <div class="card-row">
      <div>
        <span class={`badge ${row.state}`}>{STATES[row.state]}</span> <b>{oneLine(row.name, 80)}</b>
        <span class="quiet">
          {' '}
          line {row.line}
          {row.duration !== null && `, ${milliseconds(row.duration)}`}
          {row.logs > 0 && `, ${plural(row.logs, 'log')}`}
        </span>
      </div>
      <div class={row.state === 'fault' ? 'text bad' : 'text'}>{oneLine(row.text, 300)}</div>
    </div>
  );
}

function Card({ detail }: { detail: Detail }) {
  const [view, setView] = useState<'tree' | 'raw'>('tree');
  return (
    <>
      <div class="bar">
        <h3>
          {oneLine(detail.name, 120)} <span class={`badge ${detail.state}`}>{STATES[detail.state]}</span>
        </h3>
        <div class="buttons" role="group" aria-label="How lines are shown">
          <button type="button" class="small" aria-pressed={view === 'tree'} onClick={() => setView('tree')}>
            Tree
          </button>
          <button type="button" class="small" aria-pressed={view === 'raw'} onClick={() => setView('raw')}>
            Raw
          </button>
        </div>
      </div>
      <p class="quiet">
        {[detail.protocol, detail.duration === null ? '' : `took ${milliseconds(detail.duration)}`, detail.logs > 0 ? plural(detail.logs, 'log') : ''].filter(Boolean).join(', ')}
      </p>
      {detail.parts.map((part) => (
        <PartView key={part.line} part={part} view={view} />
      ))}
      {detail.more > 0 && <p class="quiet">{plural(detail.more, 'more line')} of this card.</p>}
    </>
  );
}

const KINDS: Record<string, string> = { request: 'Request', notification: 'Notification', log: 'Log', reply: 'Reply', error: 'Error reply', event: 'Event', batch: 'Batch', json: 'JSON', fault: 'Damaged line' };

function PartView({ part, view }: { part: Part; view: 'tree' | 'raw' }) {
  const isLog = part.kind === 'log';
  return (
    <div class="part">
      <h4>
        {KINDS[part.kind] ?? 'Line'}{' '}
        <span class="quiet">
          line {part.line}
          {part.direction && `, ${part.direction}`}
          {part.time !== null && (part.time > 1e11 ? `, ${new Date(part.time).toISOString()}` : `, at ${milliseconds(part.time)}`)}
        </span>
      </h4>
      {part.fault && (
        <p class="error">
          {shown(part.fault.reason)}, at byte {part.fault.position + 1} of the line.
        </p>
      )}
      {isLog && view === 'tree' ? <LogText raw={part.raw} /> : view === 'tree' && !part.fault && part.cut === 0 ? <Tree raw={part.raw} /> : <pre class="raw">{shown(part.raw)}</pre>}
      {part.cut > 0 && <p class="quiet">{plural(part.cut, 'more character')} of this line.</p>}
    </div>
  );
}

function LogText({ raw }: { raw: string }) {
  let params: { level?: unknown; message?: unknown } | undefined;
  try {
    params = (JSON.parse(raw) as { params?: typeof params }).params;
  } catch {
    return <pre class="raw">{shown(raw)}</pre>;
  }
  if (typeof params?.message !== 'string') return <Tree raw={raw} />;
  return (
    <p class={`log ${typeof params.level === 'string' && ['debug', 'info', 'warn', 'error'].includes(params.level) ? params.level : ''}`}>
      <span class="level">{oneLine(String(params.level ?? ''), 20)}</span> <span class="text"><Said text={params.message} /></span>
    </p>
  );
}
