import { useId } from 'preact/hooks';
import { clients, holder, name, rename } from './session';
import { oneLine, plural } from './text';

/** Who else is connected to the rig, and whose call runs. */
export function WhoIsHere() {
  const id = useId();
  const known = clients.value;
  if (known === null) return null;
  const others = known.clients.filter((one) => one.id !== known.you);
  const own = known.clients.find((one) => one.id === known.you);
  const running = holder();
  const turn = running ? `${oneLine(running.name, 60)} runs ${oneLine(running.operation, 60)}.` : own?.state === 'running' ? 'Your call runs.' : 'No call runs.';
  return (
    <div class="who" role="group" aria-label="Who is connected">
      <p>
        {others.length === 0 ? 'Nobody else is connected.' : `${plural(others.length, 'other client')}: ${others.map((one) => oneLine(one.name, 60)).join(', ')}.`} <span data-turn={running?.name ?? ''}>{turn}</span>
      </p>
      <details>
        <summary>Your name for others: {oneLine(own?.name ?? name.value, 60)}</summary>
        <div class="field short">
          <label for={id}>Name</label>
          <input id={id} type="text" maxLength={60} autocomplete="off" value={name.value} onInput={(event) => rename(event.currentTarget.value)} />
          <div class="hint">It is used from the next connection on.</div>
        </div>
      </details>
    </div>
  );
}
