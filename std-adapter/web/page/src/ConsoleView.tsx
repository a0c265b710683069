import { useEffect, useRef, useState } from 'preact/hooks';
import * as console from './console';
import { manifest, ready } from './session';
import { Said } from './Said';
import { save } from './text';

/** The console of the board under test, as a terminal: what it says, and a line to send. */
export function Console() {
  const [line, setLine] = useState('');
  const pane = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  const { value: text } = console.text;
  useEffect(() => {
    if (pane.current && isAtEnd.current) pane.current.scrollTop = pane.current.scrollHeight;
  }, [text]);
  if (!console.hasConsole(manifest.value)) return null;
  const isOff = !ready.value;
  return (
    <section class="panel console" aria-labelledby="console-title">
      <div class="bar">
        <h2 id="console-title">Console of the board under test</h2>
        <div class="buttons">
          <label class="check">
            <input type="checkbox" checked={console.isFollowing.value} onChange={(event) => console.follow(event.currentTarget.checked)} />
            Follow
          </label>
          {console.hasBreak() && (
            <button type="button" class="small" disabled={isOff} onClick={() => void console.sendBreak()}>
              Send a break
            </button>
          )}
          <button type="button" class="small" disabled={text === ''} onClick={() => save('console.txt', 'text/plain', text)}>
            Save
          </button>
          <button type="button" class="small" disabled={text === ''} onClick={console.clear}>
            Clear
          </button>
        </div>
      </div>
      <pre
        class="terminal"
        ref={pane}
        tabIndex={0}
        role="region"
        aria-label="What the console said"
        onScroll={(event) => {
          const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
          isAtEnd.current = scrollHeight - scrollTop - clientHeight < 20;
        }}
      >
        <Said text={text} />
      </pre>
      <form
        class="bar"
        onSubmit={(event) => {
          event.preventDefault();
          setLine('');
          if (!console.isFollowing.value) console.follow(true);
          void console.send(line);
        }}
      >
        <label class="grow">
          <span class="sr">A line for the console</span>
          <input type="text" value={line} autocomplete="off" spellcheck={false} placeholder="A line; Enter sends it with a carriage return" onInput={(event) => setLine(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary" disabled={isOff}>
          Send
        </button>
      </form>
      {console.problem.value && (
        <p class="error" role="alert">
          <Said text={console.problem.value} />
        </p>
      )}
      {console.counters.value.length > 0 && (
        <p class="quiet">{console.counters.value.map(([name, count]) => `${name.replaceAll('_', ' ')} ${count}`).join(', ')}</p>
      )}
    </section>
  );
}
