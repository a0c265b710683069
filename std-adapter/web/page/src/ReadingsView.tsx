import { useEffect, useId, useState } from 'preact/hooks';
import { show } from './address';
import * as poll from './poll';
import * as readings from './readings';
import { ready } from './session';
import { clock, milliseconds, oneLine, shown } from './text';

/** What is pinned: the newest values with their limits, and a picture of the last ones. The page of plots has its own buttons for sampling. */
export function Readings({ isPlot = false }: { isPlot?: boolean }) {
  const all = readings.pinned.value;
  if (all.length === 0) return null;
  const isRunning = poll.status.value === 'running';
  return (
    <section class="panel readings" aria-labelledby="readings-title">
      <div class="bar">
        <h2 id="readings-title">Readings</h2>
        <div class="buttons">
          <label class="check">
            <input
              type="checkbox"
              checked={readings.hasSound.value}
              onChange={(event) => {
                readings.hasSound.value = event.currentTarget.checked;
                if (event.currentTarget.checked) readings.beep();
              }}
            />
            Sound with an alarm
          </label>
          {!isPlot &&
            (isRunning ? (
              <button type="button" class="small" onClick={poll.pause}>
                Pause reading
              </button>
            ) : (
              <button type="button" class="small primary" disabled={!ready.value} onClick={poll.start}>
                Keep reading
              </button>
            ))}
        </div>
      </div>
      <ul class="reading-list">
        {all.map((one) => (
          <Reading key={one.id} one={one} />
        ))}
      </ul>
    </section>
  );
}

function Reading({ one }: { one: readings.Pinned }) {
  void poll.version.value;
  const id = useId();
  const series = readings.seriesOf(one);
  const now = series?.column.now ?? null;
  const { state, words } = readings.judge(one);
  const unit = series && now?.value !== null && now !== null && !now.text.includes(series.column.unit) ? series.column.unit : '';
  return (
    <li class={`reading ${state}`} data-state={state}>
      <div class="reading-name" id={`${id}-name`}>
        {oneLine(readings.labelOf(one), 120)}
      </div>
      <div class="reading-value">
        <b>{now ? oneLine(now.text, 40) : '–'}</b>
        {unit && ` ${unit}`}
      </div>
      <Sparkline values={series ? poll.samples.recent(series.column, 60) : []} />
      <div class="reading-state">
        <span class={`badge ${state === 'good' ? 'done' : state === 'bad' ? 'failed' : ''}`}>{state === 'good' ? 'good' : state === 'bad' ? 'out of limits' : words}</span> {state !== 'none' && shown(words)}
        {now && <Age time={now.time} />}
      </div>
      <details class="reading-more">
        <summary>Limits</summary>
        <div class="reading-limits">
          <Limit id={`${id}-least`} name="At least" value={one.least} onInput={(least) => readings.limit(one.id, { least })} />
          <Limit id={`${id}-most`} name="At most" value={one.most} onInput={(most) => readings.limit(one.id, { most })} />
        </div>
      </details>
      <div class="buttons">
        <button
          type="button"
          class="small"
          aria-describedby={`${id}-name`}
          onClick={() => {
            poll.plot(one.operation, one.args, one.output);
            show('plots');
          }}
        >
          Plot
        </button>
        <button type="button" class="small" aria-describedby={`${id}-name`} onClick={() => readings.unpin(one.id)}>
          Unpin
        </button>
      </div>
    </li>
  );
}

function Limit({ id, name, value, onInput }: { id: string; name: string; value: string; onInput: (text: string) => void }) {
  const problem = readings.limitProblem(value);
  return (
    <div>
      <label for={id}>{name}</label>
      <input
        id={id}
        type="text"
        inputMode="decimal"
        autocomplete="off"
        value={value}
        aria-invalid={problem ? true : undefined}
        aria-describedby={problem ? `${id}-error` : undefined}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      {problem && (
        <div class="error" id={`${id}-error`}>
          {problem}
        </div>
      )}
    </div>
  );
}

/** How old a value is, once that is worth saying. */
function Age({ time }: { time: number }) {
  const [, setNow] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setNow((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const age = Date.now() - time * 1000;
  const due = poll.status.value === 'running' ? Math.max(3000, 3000 * poll.interval.value) : 3000;
  return age > due ? <span class="quiet"> {milliseconds(Math.floor(age / 1000) * 1000)} ago</span> : null;
}

/** The last values as a line; a gap is a gap, and a value between gaps is a dot. */
function Sparkline({ values }: { values: (number | null)[] }) {
  const numbers = values.filter((value) => value !== null);
  if (numbers.length === 0) return <svg class="sparkline" viewBox="0 0 120 28" aria-hidden="true" />;
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const place = (value: number, at: number): [number, number] => [values.length > 1 ? 2 + (116 * at) / (values.length - 1) : 60, most > least ? 25 - 22 * ((value / 2 - least / 2) / (most / 2 - least / 2)) : 14];
  const runs: [number, number][][] = [];
  values.forEach((value, at) => {
    if (value === null) return;
    if (at > 0 && values[at - 1] !== null) runs.at(-1)?.push(place(value, at));
    else runs.push([place(value, at)]);
  });
  return (
    <svg class="sparkline" viewBox="0 0 120 28" preserveAspectRatio="none" aria-hidden="true">
      {runs.map((run, at) =>
        run.length === 1 ? (
          <circle key={at} cx={run[0]?.[0]} cy={run[0]?.[1]} r="2" />
        ) : (
          <polyline key={at} points={run.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(' ')} />
        ),
      )}
    </svg>
  );
}

/** What was outside its limits, on every page, until it is acknowledged. */
export function Alarms() {
  const all = readings.alarms.value;
  if (all.length === 0) return null;
  return (
    <div class="alarms" role="alert">
      {all.map((alarm) => (
        <div key={alarm.pinned}>
          <span>
            <b>Alarm:</b> {oneLine(alarm.label, 120)} was {shown(alarm.words)}, at {clock(alarm.since).slice(0, 8)}.
          </span>
          <button type="button" class="small" onClick={() => readings.acknowledge(alarm.pinned)}>
            Acknowledge
          </button>
        </div>
      ))}
    </div>
  );
}
