import { effect } from '@preact/signals';
import { view } from './address';
import icon from './icon.svg?url';
import busy from './icon-busy.svg?url';
import ended from './icon-ended.svg?url';
import { alarms } from './readings';
import { calls, manifest, state } from './session';
import { oneLine } from './text';

const VIEWS = { live: 'Live', plots: 'Plots', transcript: 'Transcript', evals: 'Evals' };
const STATES = { idle: 'not connected', connecting: 'connecting', ready: '', ended: 'no connection' };

// The tab says which rig it is, and how it is: a lab keeps several open.
effect(() => {
  const { at } = state.value;
  const rig = manifest.value && at !== 'idle' ? oneLine(manifest.value.name, 40) : null;
  const running = calls.value.find((call) => call.status === 'running' || call.status === 'waiting');
  const doing = at === 'ready' && running ? `${oneLine(running.operation, 40)} ${running.status === 'waiting' ? 'waits' : 'runs'}` : STATES[at];
  document.title = [alarms.value.length > 0 ? 'Alarm' : '', doing, rig, VIEWS[view.value], 'rigline'].filter(Boolean).join(' - ');
  const wanted = at === 'ended' || alarms.value.length > 0 ? ended : at === 'ready' && running ? busy : icon;
  const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  if (link && link.getAttribute('href') !== wanted) link.href = wanted;
});
