import { useEffect, useState } from 'preact/hooks';
import { ask, info } from './address';
import { oneLine, plural } from './text';

/** The rigs that the server's target means, and who waits for them. `mine` is this server. */
interface Told {
  rigs: { name: string; state: string; reason: string | null; holder: string | null; mine: boolean; endsInMs: number | null }[];
  queue: { who: string; mine: boolean }[];
}

/** How often it is asked, in milliseconds. */
const PAUSE = 2000;

/** Of a rig of the lab: who has it, until when, and this server's place in the queue. */
export function WhoHasIt() {
  const [told, setTold] = useState<Told | string | null>(null);
  const isRig = info.value?.lab === true;
  useEffect(() => {
    if (!isRig) return;
    let isOver = false;
    let timer = 0;
    const look = async () => {
      const found = await ask<Told>('api/lab').catch((error: unknown) => (error instanceof Error ? error.message : String(error)));
      if (isOver) return;
      setTold(found);
      timer = window.setTimeout(() => void look(), PAUSE);
    };
    void look();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [isRig]);
  if (!isRig || told === null) return null;
  if (typeof told === 'string') return <p class="who">The lab does not say who has the rig: {oneLine(told, 300)}</p>;
  const place = told.queue.findIndex((one) => one.mine) + 1;
  return (
    <div class="who" role="group" aria-label="Who has the rig">
      {told.rigs.map((rig) => (
        <p key={rig.name}>
          <strong>{oneLine(rig.name, 60)}</strong>: {words(rig)}
        </p>
      ))}
      {place > 0 && <p>This page waits: its place in the queue is {place}.</p>}
      {place === 0 && told.queue.length > 0 && <p>{plural(told.queue.length, 'other one waits', 'others wait')} for it.</p>}
    </div>
  );
}

function words({ state, reason, holder, mine, endsInMs }: Told['rigs'][number]): string {
  if (holder !== null) return `${mine ? 'yours' : `${oneLine(holder, 80)} has it`}${endsInMs === null ? '' : `, until ${until(endsInMs)}`}.`;
  if (reason !== null) return `in quarantine: ${oneLine(reason, 300)}.`;
  return state === 'free' ? 'free.' : state === 'offered' ? 'offered to somebody.' : 'made safe for the next one.';
}

/** The time of day when so many milliseconds are over; with the date, if that is another day. */
function until(milliseconds: number): string {
  const end = new Date(Date.now() + milliseconds);
  const isToday = end.toDateString() === new Date().toDateString();
  return isToday ? end.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' }) : end.toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' });
}
