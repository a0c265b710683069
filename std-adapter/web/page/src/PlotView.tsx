import { useId, useState } from 'preact/hooks';
import { Chart, colorOf } from './Chart';
import { Arguments } from './Form';
import * as poll from './poll';
import { type Draft, collect } from './schema';
import { manifest, ready, state } from './session';
import { oneLine, plural, save, shown } from './text';

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

export function PlotView() {
  const drawn = poll.series.value.filter((one) => one.isShown);
  const status = poll.status.value;
  const counts = poll.counts.value;
  if (!manifest.value && poll.sources.value.length === 0) {
    return <section class="panel">Connect to a rig on the page “Live” first.</section>;
  }
  return (
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
          <Rate />
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
            <button type="button" disabled={poll.times.length === 0} onClick={poll.clear}>
              Clear
            </button>
            <button type="button" disabled={poll.times.length === 0} onClick={() => save('plot.csv', 'text/csv', poll.csv())}>
              Save as CSV
            </button>
          </div>
        </div>
        <p class="quiet" data-samples={counts.samples} data-missed={counts.missed}>
          {plural(counts.samples, 'sample')}
          {counts.missed > 0 && `, ${plural(counts.missed, 'missed sample')} (shown as gaps)`}
          {counts.failed > 0 && `, ${plural(counts.failed, 'failed call')}`}
          {counts.dropped > 0 && `, ${plural(counts.dropped, 'old point')} dropped`}.{state.value.at !== 'ready' && ' There is no connection.'}
        </p>
        {poll.lastError.value && (
          <p class="error" role="alert">
            {shown(poll.lastError.value)}
          </p>
        )}
        {drawn.length > 0 ? (
          <Chart
            label={`Line chart of ${drawn.map((one) => shown(one.label)).join('; ')}. The table below has the values.`}
            x={poll.times}
            isTime
            series={drawn.map((one) => ({ label: one.label, values: one.values }))}
            version={poll.version.value}
          />
        ) : (
          <p class="empty">Nothing is drawn yet.</p>
        )}
        {poll.series.value.length > 0 && <Legend />}
      </section>
    </div>
  );
}

function Legend() {
  void poll.version.value;
  let color = 0;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Series">
      <table>
        <caption class="sr">Series and their values</caption>
        <thead>
          <tr>
            <th scope="col">Series</th>
            <th scope="col">Now</th>
            <th scope="col">Least</th>
            <th scope="col">Most</th>
          </tr>
        </thead>
        <tbody>
          {poll.series.value.map((one) => {
            let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
            for (const value of one.values) if (value !== null) [least, most] = [Math.min(least, value), Math.max(most, value)];
            const now = one.values.findLast((value) => value !== null);
            return (
              <tr key={one.key}>
                <th scope="row">
                  <label class="check">
                    <input type="checkbox" checked={one.isShown} onChange={(event) => poll.show(one.key, event.currentTarget.checked)} />
                    <span class="swatch" style={{ background: one.isShown ? colorOf(color++) : 'transparent' }} />
                    {shown(one.label)}
                  </label>
                </th>
                <td class="number">{now ?? ''}</td>
                <td class="number">{Number.isFinite(least) ? least : ''}</td>
                <td class="number">{Number.isFinite(most) ? most : ''}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Rate() {
  const id = useId();
  return (
    <div class="inline">
      <label for={id}>Rate</label>
      <select id={id} value={String(poll.interval.value)} onChange={(event) => (poll.interval.value = Number(event.currentTarget.value))}>
        {RATES.map(([seconds, name]) => (
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
  const operation = all.find((one) => one.name === name) ?? usual;
  if (!operation) return null;
  const add = (event: Event) => {
    event.preventDefault();
    const { json, errors: found } = collect(operation.params, draft);
    setErrors(found);
    if (json !== null) poll.addSource(operation.name, json);
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
    </form>
  );
}
