import './style.css';
import { render } from 'preact';
import { VIEWS, type View, greet, info, show, view } from './address';
import { EvalsView } from './EvalsView';
import { LiveView } from './LiveView';
import { PlotView } from './PlotView';
import { restore } from './poll';
import { load } from './rigline';
import { follow } from './forms';
import { EverythingOff } from './EverythingOff';
import { connect, keptPlace, manifest, notice, state } from './session';
import './title';
import { messageOf, oneLine, shown } from './text';
import { CHOICES, type Choice, theme } from './theme';
import { Alarms } from './ReadingsView';
import * as readings from './readings';
import { TranscriptView } from './TranscriptView';

const NAMES: Record<View, string> = { live: 'Live', plots: 'Plots', transcript: 'Transcript', evals: 'Evals' };
const SHOWN: Record<View, () => preact.JSX.Element> = { live: LiveView, plots: PlotView, transcript: TranscriptView, evals: EvalsView };

function Page() {
  const Shown = SHOWN[view.value];
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const next = VIEWS[(VIEWS.indexOf(view.value) + step + VIEWS.length) % VIEWS.length] as View;
    show(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById('main')?.focus())}>
        Go to the content
      </a>
      <header>
        <h1>rigline</h1>
        <div class="tabs" role="tablist" aria-label="Pages" onKeyDown={onKeyDown}>
          {VIEWS.map((name) => (
            <button key={name} id={`tab-${name}`} type="button" role="tab" aria-selected={view.value === name} aria-controls="main" tabIndex={view.value === name ? 0 : -1} onClick={() => show(name)}>
              {NAMES[name]}
            </button>
          ))}
        </div>
        <Light />
        <EverythingOff />
        <label class="theme">
          <span class="sr">Colours</span>
          <select value={theme.choice.value} onChange={(event) => (theme.choice.value = event.currentTarget.value as Choice)}>
            {CHOICES.map((one) => (
              <option key={one} value={one}>
                {{ system: 'system colours', light: 'light', dark: 'dark' }[one]}
              </option>
            ))}
          </select>
        </label>
      </header>
      <Alarms />
      <main>
        <div id="main" role="tabpanel" aria-labelledby={`tab-${view.value}`} tabIndex={-1}>
          <Shown />
        </div>
      </main>
      <p class="notice" role="status" aria-live="polite">
        {shown(notice.value)}
      </p>
      {info.value && <footer class="quiet">rigline {info.value.version}</footer>}
    </>
  );
}

/** Whether there is a connection, on every page. */
function Light() {
  const { at } = state.value;
  const rig = at === 'ready' ? manifest.value?.name : undefined;
  return (
    <span class={`light ${at}`}>
      {rig !== undefined && <b class="rig">{oneLine(rig, 40)}</b>}
      <span>{{ idle: 'not connected', connecting: 'connecting', ready: 'connected', ended: 'no connection' }[at]}</span>
    </span>
  );
}

const root = document.getElementById('app') as HTMLElement;
try {
  await load();
  follow();
  restore();
  readings.restore();
  render(<Page />, root);
  await greet();
  // A server with one target: the page is about it.
  const before = await keptPlace();
  if (info.value?.target) void connect({ kind: 'socket', target: null, label: info.value.target });
  // The page was loaded anew: it goes on with what it was connected to.
  else if (before) void connect(before);
} catch (error) {
  root.textContent = `This page cannot be started: ${messageOf(error)}`;
}
