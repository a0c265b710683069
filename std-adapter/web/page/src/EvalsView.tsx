import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { info } from './address';
import { Chart, drawable } from './Chart';
import * as evals from './evals';
import { unitOfName } from './reading';
import { Said } from './Said';
import { milliseconds, oneLine, plural, shown } from './text';
import { VirtualList } from './VirtualList';

export function EvalsView() {
  const hasEvals = info.value?.evals === true;
  useEffect(() => {
    if (hasEvals) void evals.load();
  }, [hasEvals]);
  if (info.value === undefined) return <section class="panel">Asking the server …</section>;
  if (!hasEvals) {
    return (
      <section class="panel">
        <h2>Evals</h2>
        <p>
          The server of this page has no evals. Start it with a folder of them: <code>rigline web sim --evals DIR</code>.
        </p>
      </section>
    );
  }
  return (
    <div class="evals">
      {evals.failure.value && (
        <section class="panel problem" role="alert">
          <p class="error">{shown(evals.failure.value)}</p>
          <button type="button" onClick={() => void evals.load()}>
            Try again
          </button>
        </section>
      )}
      <List />
      {evals.current.value && <Current run={evals.current.value} />}
      {evals.runs.value && evals.runs.value.length > 0 && <Trend runs={evals.runs.value} />}
      {evals.runs.value && <Runs runs={evals.runs.value} />}
    </div>
  );
}

function isActive(run: evals.Running | null): boolean {
  return run !== null && ['starting', 'running', 'cancelling'].includes(run.status);
}

function List() {
  const listed = evals.evals.value;
  if (listed === null) return evals.failure.value ? null : <section class="panel">Reading the evals …</section>;
  return (
    <section class="panel" aria-labelledby="evals-title">
      <h2 id="evals-title">Evals</h2>
      {listed.length === 0 && <p>There are none in this folder. “rigline eval new” begins one.</p>}
      <ul class="eval-list">
        {listed.slice(0, 1000).map((one) => (
          <li key={one.path}>
            <span>
              <b>{oneLine(one.name, 100)}</b> <span class="quiet">{oneLine(one.path, 200)}</span>
            </span>
            <button type="button" class="small primary" disabled={isActive(evals.current.value) && evals.current.value?.isLookedAt !== true} onClick={() => void evals.run(one)}>
              Run {oneLine(one.name, 40)}
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

function TaskBadge({ status }: { status: string }) {
  const known = ['waiting', 'running', 'passed', 'failed', 'skipped', 'error', 'completed', 'cancelled'].includes(status) ? status : '';
  return <span class={`badge ${known}`}>{oneLine(status, 40)}</span>;
}

/** The words and colors of the reports' verdicts. */
const VERDICTS: Record<string, [string, string]> = {
  pass: ['passed', 'passed'],
  fail: ['failed', 'failed'],
  rig_error: ['rig error', 'error'],
  flaky: ['flaky', 'skipped'],
  skipped: ['skipped', 'skipped'],
  cancelled: ['cancelled', 'cancelled'],
};

/** A verdict of the reports, or the status where there is none. */
function VerdictBadge({ verdict, status }: { verdict: string | null | undefined; status: string }) {
  const known = typeof verdict === 'string' && Object.hasOwn(VERDICTS, verdict) ? VERDICTS[verdict] : undefined;
  if (!known) return <TaskBadge status={status} />;
  return (
    <span class={`badge ${known[1]}`} data-verdict={verdict}>
      {known[0]}
    </span>
  );
}

function Current({ run }: { run: evals.Running }) {
  const panel = useRef<HTMLElement>(null);
  // A run comes into sight of the button that started it, however long the list of evals is.
  useEffect(() => {
    if (run.status === 'starting') panel.current?.scrollIntoView({ block: 'nearest' });
  }, [run.status === 'starting', run.name]);
  const kept = evals.runs.value?.find((one) => one.runId === run.runId);
  const reason = (!isActive(run) && kept?.reason) || null;
  // The reason of a run that failed as a whole begins with its error.
  const isSame = run.error !== null && reason?.startsWith(run.error) === true;
  return (
    <section class="panel run" aria-labelledby="run-title" ref={panel}>
      <div class="bar">
        <h2 id="run-title">
          {oneLine(run.name, 80)} <VerdictBadge verdict={isActive(run) ? null : kept?.verdict} status={run.status} />
        </h2>
        {isActive(run) && (
          <button type="button" disabled={run.runId === null || run.status === 'cancelling'} onClick={() => void evals.stop()}>
            Cancel the run
          </button>
        )}
      </div>
      {run.error && (
        <p class="error" role="alert">
          {shown((isSame && reason) || run.error)}
        </p>
      )}
      <p role="status">{run.summary ? `${run.summary.passed} of ${plural(run.summary.total, 'task')} passed.` : isActive(run) ? 'The run goes on.' : ''}</p>
      {reason && !isSame && <p class="quiet">{shown(reason)}</p>}
      <ul class="tasks">
        {run.tasks.slice(0, 1000).map((task) => (
          <li key={task.id} class={`task ${task.status}`} data-task={task.id} data-status={task.status}>
            <TaskBadge status={task.status} /> <span>{oneLine(task.name, 120)}</span>
            <span class="quiet">
              {' '}
              {task.trials}
              {task.milliseconds !== null && milliseconds(task.milliseconds)}
            </span>
          </li>
        ))}
      </ul>
      {run.logs.length > 0 && (
        <>
          <h3>
            Logs {run.droppedLogs > 0 && <span class="quiet">({plural(run.droppedLogs, 'older line was dropped', 'older lines were dropped')})</span>}
          </h3>
          <VirtualList id="run-logs" label="Logs of the run" most={190} count={run.logs.length} rowHeight={26} follow row={(at) => <div class="log"><Said text={run.logs[at] ?? ''} line={400} /></div>} />
        </>
      )}
    </section>
  );
}

function Trend({ runs }: { runs: evals.Run[] }) {
  const id = useId();
  const names = [...new Set(runs.map((run) => run.name))];
  const [name, setName] = useState<string | null>(null);
  const [wanted, setWanted] = useState<string | null>(null);
  const chosen = name !== null && names.includes(name) ? name : (names.find((one) => valuesOf(runs, one).length > 0) ?? names[0] ?? '');
  const values = valuesOf(runs, chosen);
  const value = wanted !== null && values.includes(wanted) ? wanted : values[0];
  const own = runs.filter((run) => run.name === chosen).toReversed();
  const points = own.map((run) => (value === undefined ? null : valueOf(run, value)));
  return (
    <section class="panel" aria-labelledby={`${id}-title`}>
      <div class="bar">
        <h2 id={`${id}-title`}>Trend of a value</h2>
        <div class="inline">
          <label for={`${id}-eval`}>Eval</label>
          <select id={`${id}-eval`} value={chosen} onChange={(event) => setName(event.currentTarget.value)}>
            {names.map((one) => (
              <option key={one} value={one}>
                {oneLine(one, 60)}
              </option>
            ))}
          </select>
        </div>
        {values.length > 0 && (
          <div class="inline">
            <label for={`${id}-value`}>Value</label>
            <select id={`${id}-value`} value={value} onChange={(event) => setWanted(event.currentTarget.value)}>
              {values.map((one) => (
                <option key={one} value={one}>
                  {oneLine(one, 80)}
                </option>
              ))}
            </select>
          </div>
        )}
      </div>
      {value === undefined ? (
        <p class="quiet">No run of this eval has a measured value.</p>
      ) : (
        <>
          <Chart
            label={`${oneLine(value)} in ${plural(points.filter((point) => point !== null).length, 'run')} of ${oneLine(chosen)}. The table of earlier runs has the values.`}
            lines={[{ label: value, slot: 0, unit: unitOfName(value) }]}
            read={() => ({ x: own.map((_, at) => at + 1), ys: [points] })}
            extent={own.length > 0 ? [1, own.length] : null}
            count={own.length}
            isTime={false}
            xLabel={(at) => (own[at - 1] ? `run ${at}` : '')}
            version={runs.length}
            height={220}
          />
          <details>
            <summary>The values as a table</summary>
            <div class="scroll" tabIndex={0} role="group" aria-label="Values">
              <table>
                <thead>
                  <tr>
                    <th scope="col">Run</th>
                    <th scope="col">Started</th>
                    <th scope="col">{oneLine(value, 80)}</th>
                  </tr>
                </thead>
                <tbody>
                  {own.map((run, at) => (
                    <tr key={run.runId}>
                      <th scope="row">{at + 1}</th>
                      <td>{new Date(run.startedAtMs).toLocaleString()}</td>
                      <td class="number">{points[at] ?? 'not measured'}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          </details>
        </>
      )}
    </section>
  );
}

/** The values that runs of this eval measured, as `TASK: VALUE`. */
function valuesOf(runs: evals.Run[], name: string): string[] {
  const found = new Set<string>();
  for (const run of runs) {
    if (run.name !== name) continue;
    for (const task of run.tasks ?? []) for (const value of Object.keys(task.values ?? {})) found.add(`${task.id}: ${value}`);
  }
  return [...found].slice(0, 500);
}

function valueOf(run: evals.Run, name: string): number | null {
  for (const task of run.tasks ?? []) {
    for (const [value, number] of Object.entries(task.values ?? {})) if (`${task.id}: ${value}` === name) return drawable(number);
  }
  return null;
}

function Runs({ runs }: { runs: evals.Run[] }) {
  return (
    <section class="panel" aria-labelledby="runs-title">
      <h2 id="runs-title">Earlier runs</h2>
      {runs.length === 0 && <p>There are none yet.</p>}
      {runs.length > 0 && (
        <div class="scroll history" tabIndex={0} role="group" aria-label="Runs">
          <table>
            <thead>
              <tr>
                <th scope="col">Eval</th>
                <th scope="col">Started</th>
                <th scope="col">Result</th>
                <th scope="col">Passed</th>
              </tr>
            </thead>
            <tbody>
              {runs.slice(0, 500).map((run) => (
                <tr key={run.runId}>
                  <th scope="row">
                    <button type="button" class="twist" aria-expanded={evals.opened.value?.runId === run.runId} onClick={() => void evals.open(run.runId)}>
                      {oneLine(run.name, 80)}
                    </button>
                  </th>
                  <td>{new Date(run.startedAtMs).toLocaleString()}</td>
                  <td>
                    <VerdictBadge verdict={run.verdict} status={run.status === 'completed' ? (run.total > 0 && run.passed === run.total ? 'passed' : 'failed') : run.status} />
                    {run.error ? <span class="bad"> {oneLine(run.error, 160)}</span> : run.reason && <span class="quiet"> {oneLine(run.reason, 160)}</span>}
                  </td>
                  <td class="number">
                    {run.passed} of {run.total}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {evals.opened.value && <RunDetail run={evals.opened.value} />}
    </section>
  );
}

/** What a run's record has: each trial with the outputs of its steps and its graders, and the logs. */
function RunDetail({ run }: { run: evals.Detail | { runId: string; why: string } }) {
  if ('why' in run) {
    return (
      <p class="error" role="alert">
        The run cannot be read: {shown(run.why)}
      </p>
    );
  }
  const started = new Date(run.startedAtMs).toLocaleString();
  return (
    <div class="run-detail" role="group" aria-label={`Run of ${oneLine(run.name, 60)}, ${started}`}>
      <h3>
        {oneLine(run.name, 80)} <span class="quiet">{started}{run.target ? `, on ${oneLine(run.target, 60)}` : ''}</span>
      </h3>
      {run.error && <p class="error">{shown(run.error)}</p>}
      {run.trials.length === 0 && <p class="quiet">No trial of this run has ended.</p>}
      {run.trials.slice(0, 200).map((trial, at) => (
        <details key={at} open={run.trials.length === 1 || trial.status !== 'passed'}>
          <summary>
            <VerdictBadge verdict={trial.verdict} status={trial.status} /> {oneLine(trial.task, 100)}, trial {trial.trial} <span class="quiet">{milliseconds(trial.durationMs)}</span>
          </summary>
          {trial.error && <p class="error">{shown(trial.error)}</p>}
          <div class="scroll" tabIndex={0} role="group" aria-label={`Steps of ${oneLine(trial.task, 60)}, trial ${trial.trial}`}>
            <table>
              <thead>
                <tr>
                  <th scope="col">Step</th>
                  <th scope="col">Result</th>
                  <th scope="col">Outputs</th>
                </tr>
              </thead>
              <tbody>
                {trial.steps.slice(0, 200).map((step, number) => (
                  <tr key={number}>
                    <th scope="row">{oneLine(step.id ?? step.operation, 60)}</th>
                    <td>
                      <TaskBadge status={step.status} /> {step.message && oneLine(step.message, 200)}
                    </td>
                    <td class="value">
                      {Object.entries(step.outputs ?? {})
                        .slice(0, 50)
                        .map(([name, value]) => `${oneLine(name, 60)} = ${oneLine(String(value), 200)}`)
                        .join('\n')}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {trial.graders.length > 0 && (
            <ul>
              {trial.graders.slice(0, 200).map((grader, number) => (
                <li key={number}>
                  <TaskBadge status={grader.status} /> {oneLine(grader.name, 100)} {grader.message && <span class="quiet">{oneLine(grader.message, 300)}</span>}
                </li>
              ))}
            </ul>
          )}
        </details>
      ))}
      {run.trials.length > 200 && <p class="quiet">{plural(run.trials.length - 200, 'more trial')}.</p>}
      <h4>Logs</h4>
      {run.logs.length === 0 ? (
        <p class="quiet">No logs were kept with this run.</p>
      ) : (
        <VirtualList id="opened-logs" label="Logs of the opened run" class="short-list" count={run.logs.length} rowHeight={26} row={(at) => <div class="log">{oneLine(run.logs[at]?.message ?? '')}</div>} />
      )}
      {run.leftOut > 0 && <p class="quiet">{plural(run.leftOut, 'entry', 'entries')} of this run did not fit and is not shown.</p>}
    </div>
  );
}
