import { signal } from '@preact/signals';
import { useEffect, useId, useMemo, useState } from 'preact/hooks';
import { type Line, Chart, look } from './Chart';
import { Arguments } from './Form';
import { learn } from './known';
import * as poll from './poll';
import { Said } from './Said';
import { Readings } from './ReadingsView';
import { type Draft, collect } from './schema';
import { manifest, ready, state } from './session';
import { clock, oneLine, plural, save, shown } from './text';

const RATES: [number, string][] = [
  [0.05, '20 a second'],
  [0.1, '10 a second'],
  [0.2, '5 a second'],
  [0.5, '2 a second'],
  [1, '1 a second'],
  [5, 'every 5 seconds'],
  [10, 'every 10 seconds'],
  [60, 'every minute'],
];

const WINDOWS: [number, string][] = [
  [0, 'everything'],
  [10, 'the last 10 seconds'],
  [30, 'the last 30 seconds'],
  [60, 'the last minute'],
  [300, 'the last 5 minutes'],
  [900, 'the last 15 minutes'],
  [3600, 'the last hour'],
  [6 * 3600, 'the last 6 hours'],
];

/** Where the chart's cursor is, in seconds; null: nowhere. */
const cursor = signal<number | null>(null);

export function PlotView() {
  const drawn = poll.series.value.filter((one) => one.isShown);
  const status = poll.status.value;
  const counts = poll.counts.value;
  if (!manifest.value && poll.sources.value.length === 0) {
    return <section class="panel">Connect to a rig on the page “Live” first.</section>;
  }
  return (
    <>
      <Readings isPlot />
      <div class="plots">
      <section class="panel" aria-labelledby="sources-title">
        <h2 id="sources-title">What is sampled</h2>
        {poll.sources.value.length === 0 && <p>Choose an operation that has a numeric output, such as a measurement.</p>}
        <ul class="sources">
          {poll.sources.value.map((source) => (
            <li key={source.id}>
              <span>{shown(poll.nameOf(source))}</span>
              <button type="button" class="small" onClick={() => poll.removeSource(source.id)} aria-label={`Remove ${shown(poll.nameOf(source))}`}>
                Remove
              </button>
            </li>
          ))}
        </ul>
        <AddSource />
      </section>
      <section class="panel" aria-labelledby="plot-title">
        <div class="bar">
          <h2 id="plot-title">Plot</h2>
          <Choice label="Rate" value={poll.interval} choices={RATES} />
          <Choice label="Show" value={poll.windowed} choices={WINDOWS} />
          <div class="buttons">
            {status === 'running' ? (
              <button type="button" onClick={poll.pause}>
                Pause
              </button>
            ) : (
              <button type="button" class="primary" disabled={!ready.value || poll.sources.value.length === 0} onClick={poll.start}>
                {status === 'paused' ? 'Go on' : 'Start'}
              </button>
            )}
            {status !== 'stopped' && (
              <button type="button" onClick={poll.stop}>
                Stop
              </button>
            )}
            <button type="button" disabled={poll.samples.length === 0} onClick={poll.clear}>
              Clear
            </button>
            <button type="button" disabled={poll.samples.length === 0} onClick={() => save('plot.csv', 'text/csv', ...poll.csv())}>
              Save as CSV
            </button>
          </div>
        </div>
        <p class="quiet" data-samples={counts.samples} data-missed={counts.missed}>
          {plural(counts.samples, 'sample')}
          {counts.missed > 0 && `, ${plural(counts.missed, 'missed sample')} (shown as gaps)`}
          {poll.hiddenMissed.value > 0 && `, of which ${plural(poll.hiddenMissed.value, 'was', 'were')} due while this tab was hidden or asleep`}
          {counts.failed > 0 && `, ${plural(counts.failed, 'failed call')}`}
          {counts.dropped > 0 && `, ${plural(counts.dropped, 'old point')} dropped`}.{state.value.at !== 'ready' && ' There is no connection.'}
        </p>
        {poll.lastError.value && (
          <p class="error" role="alert">
            <Said text={poll.lastError.value} />
          </p>
        )}
        {drawn.length > 0 && poll.samples.length > 0 ? <Picture drawn={drawn} /> : <p class="empty">{emptiness(drawn.length)}</p>}
        {poll.series.value.length > 0 && <Legend />}
        {poll.refused.value.size > 0 && <Refused />}
      </section>
      </div>
    </>
  );
}

/** Why there is no picture. */
function emptiness(drawn: number): string {
  if (poll.sources.value.length === 0) return 'Nothing is sampled yet. Add an operation that has a numeric output.';
  if (poll.counts.value.samples === 0) return poll.status.value === 'running' ? 'The first sample is on its way.' : 'Nothing is drawn yet. Start takes the first sample.';
  if (poll.series.value.length > 0 && drawn === 0) return 'No series is chosen. The table below has them.';
  if (poll.refused.value.size > 0) return 'No output is a number. Below stands why.';
  return poll.counts.value.failed > 0 ? 'Nothing is drawn, as no call has succeeded yet.' : 'Nothing is drawn, as the operation has no outputs.';
}

function Picture({ drawn }: { drawn: poll.Plotted[] }) {
  const version = poll.version.value;
  const { samples } = poll;
  const lines = linesOf(drawn);
  const columns = useMemo(() => drawn.map((one) => one.column), [drawn]);
  const [first, last] = [samples.first ?? 0, samples.last ?? 0];
  const width = poll.windowed.value;
  const at = cursor.value;
  return (
    <Chart
      label={`Line chart of ${drawn.map((one) => oneLine(one.label, 200)).join('; ')}. The table below has the values.`}
      lines={lines}
      read={(from, to, room) => samples.read(columns, from, to, room)}
      extent={[width > 0 ? last - width : first, last]}
      count={samples.length}
      isTime
      version={version}
      onCursor={(x) => (cursor.value = x === null ? null : samples.near(x))}
      cursorText={at === null ? '' : `Cursor: ${clock(at * 1000)}`}
    />
  );
}

/** Each unit has an axis, unless the user wants another one. What has no unit is on the first. */
function linesOf(drawn: poll.Plotted[]): Line[] {
  const units = [...new Set(drawn.filter((one) => one.axis === 'unit' && one.column.unit !== '').map((one) => one.column.unit))];
  const scale = (one: poll.Plotted) => (one.axis === 'left' ? 0 : one.axis === 'right' ? 1 : Math.max(0, units.indexOf(one.column.unit)));
  return drawn.map((one) => ({ label: one.label, slot: one.slot, unit: one.column.unit, scale: scale(one) }));
}

/** A piece of the line, as it is drawn. */
function Swatch({ slot }: { slot: number }) {
  const { color, dash } = look(slot);
  return (
    <svg class="swatch" width="28" height="12" aria-hidden="true">
      <line x1="0" y1="6" x2="28" y2="6" stroke={color} stroke-width="3" stroke-dasharray={dash.join(' ')} />
    </svg>
  );
}

function Legend() {
  void poll.version.value;
  const at = cursor.value;
  const { samples } = poll;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Series">
      <table class="legend">
        <caption class="sr">Series and their values</caption>
        <thead>
          <tr>
            <th scope="col">Series</th>
            <th scope="col">Now</th>
            {at !== null && <th scope="col">At {clock(at * 1000)}</th>}
            <th scope="col">Least</th>
            <th scope="col">Most</th>
            <th scope="col">Unit</th>
            <th scope="col">Axis</th>
          </tr>
        </thead>
        <tbody>
          {poll.series.value.map((one) => {
            const { column } = one;
            const { least, most } = samples.extremes(column);
            return (
              <tr key={one.key}>
                <th scope="row">
                  <label class="check">
                    <input type="checkbox" checked={one.isShown} onChange={(event) => poll.show(one.key, event.currentTarget.checked)} />
                    {one.isShown && <Swatch slot={one.slot} />}
                    <span>{oneLine(one.label, 200)}</span>
                  </label>
                </th>
                <td class="number">
                  {oneLine(column.now?.text ?? '', 60)}
                  {column.problem && <div class="bad why">not drawn: {shown(column.problem)}</div>}
                  {!column.problem && column.note && <div class="quiet why">{shown(column.note)}</div>}
                </td>
                {at !== null && <td class="number">{oneLine(samples.textAt(column, at), 60) || <span class="quiet">no sample</span>}</td>}
                <td class="number">{oneLine(least, 60)}</td>
                <td class="number">{oneLine(most, 60)}</td>
                <td>{oneLine(column.unit, 30)}</td>
                <td>
                  <select class="small" aria-label={`Axis of ${oneLine(one.label, 200)}`} value={one.axis} onChange={(event) => poll.setAxis(one.key, event.currentTarget.value as poll.Plotted['axis'])}>
                    <option value="unit">by unit</option>
                    <option value="left">left</option>
                    <option value="right">right</option>
                  </select>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Refused() {
  return (
    <details class="not-drawn" open={poll.series.value.length === 0}>
      <summary>{plural(poll.refused.value.size, 'output is', 'outputs are')} not drawn</summary>
      <ul>
        {[...poll.refused.value].map(([key, { label, why }]) => (
          <li key={key}>
            {oneLine(label, 200)}: <span class="quiet">{shown(why)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Choice({ label, value, choices }: { label: string; value: { value: number }; choices: [number, string][] }) {
  const id = useId();
  return (
    <div class="inline">
      <label for={id}>{label}</label>
      <select id={id} value={String(value.value)} onChange={(event) => (value.value = Number(event.currentTarget.value))}>
        {choices.map(([seconds, name]) => (
          <option key={seconds} value={String(seconds)}>
            {name}
          </option>
        ))}
      </select>
    </div>
  );
}

function AddSource() {
  const id = useId();
  const all = manifest.value?.operations ?? [];
  const usual = all.find((operation) => /meas|read|get|sample/i.test(operation.name)) ?? all[0];
  const [name, setName] = useState<string | null>(null);
  const [draft, setDraft] = useState<Draft>({});
  const [errors, setErrors] = useState<Map<string, string>>(new Map());
  const [note, setNote] = useState('');
  useEffect(() => void learn(), [manifest.value, ready.value]);
  const operation = all.find((one) => one.name === name) ?? usual;
  if (!operation) return null;
  const add = (event: Event) => {
    event.preventDefault();
    const { json, errors: found } = collect(operation.params, draft);
    setErrors(found);
    if (json === null) return setNote('');
    poll.addSource(operation.name, json);
    setNote(`Added: ${poll.nameOf({ operation: operation.name, args: json })}.`);
  };
  return (
    <form onSubmit={add} noValidate>
      <div class="field">
        <label for={id}>Operation</label>
        <select
          id={id}
          value={operation.name}
          onChange={(event) => {
            setName(event.currentTarget.value);
            setDraft({});
            setErrors(new Map());
          }}
        >
          {all.map((one) => (
            <option key={one.name} value={one.name}>
              {oneLine(one.name, 100)}
            </option>
          ))}
        </select>
      </div>
      <Arguments key={operation.name} id={`${id}-arguments`} schema={operation.params} draft={draft} onChange={setDraft} errors={errors} />
      <button type="submit">Add to the plot</button>
      <p class="quiet" role="status">
        {oneLine(note, 200)}
      </p>
    </form>
  );
}
