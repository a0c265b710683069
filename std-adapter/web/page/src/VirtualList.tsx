import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

interface Properties {
  label: string;
  count: number;
  /** In pixels; all rows have the same. */
  rowHeight: number;
  row: (index: number) => ComponentChildren;
  /** Which row is chosen, and what happens when another is. Without it rows cannot be chosen. */
  selected?: number;
  onSelect?: (index: number) => void;
  /** Stays at the end while rows are added. */
  follow?: boolean;
  /** Told which rows are on the screen. */
  onRange?: (from: number, to: number) => void;
  class?: string;
  /** How high it is at most, in pixels; with few rows it is no higher than they are. Without it the style sheet says it. */
  most?: number;
  id: string;
}

/** Browsers cannot lay out more; beyond it a pixel of the scroll bar is more than a pixel of the list. */
const TALLEST = 8_000_000;
const SPARE = 6;

/** A list of any length, of which only the rows on the screen exist. */
export function VirtualList(given: Properties) {
  const { count, rowHeight, row, selected, onSelect, follow, onRange, label, id } = given;
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(400);
  const atEnd = useRef(true);
  const full = count * rowHeight;
  const tall = Math.min(full, TALLEST);
  const travel = Math.max(1, tall - height);
  // How far down the list is, in pixels of the list.
  const offset = full > TALLEST ? (Math.min(top, travel) / travel) * (full - height) : top;
  const first = Math.max(0, Math.min(count - 1, Math.floor(offset / rowHeight)) - SPARE);
  const last = Math.min(count, Math.ceil((offset + height) / rowHeight) + SPARE);
  const scrollTo = (pixels: number) => {
    const element = box.current;
    if (element) element.scrollTop = full > TALLEST ? (pixels / Math.max(1, full - height)) * travel : pixels;
  };

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setHeight(element.clientHeight || 400);
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (follow && atEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  });
  useEffect(() => onRange?.(first, last), [first, last, count]);

  const choose = (index: number) => {
    const to = Math.max(0, Math.min(count - 1, index));
    onSelect?.(to);
    if (to * rowHeight < offset) scrollTo(to * rowHeight);
    else if ((to + 1) * rowHeight > offset + height) scrollTo((to + 1) * rowHeight - height);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (!onSelect || count === 0) return;
    const page = Math.max(1, Math.floor(height / rowHeight) - 1);
    const now = selected ?? -1;
    const to = { ArrowDown: now + 1, ArrowUp: now - 1, PageDown: now + page, PageUp: now - page, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(to);
  };
  const rows = [];
  for (let index = first; index < last; index++) {
    const isChosen = index === selected;
    rows.push(
      <div
        key={index}
        id={`${id}-${index}`}
        class={`row${isChosen ? ' chosen' : ''}`}
        style={{ height: `${rowHeight}px`, top: `${index * rowHeight - offset + top}px` }}
        {...(onSelect
          ? { role: 'option', 'aria-selected': isChosen, 'aria-setsize': count, 'aria-posinset': index + 1, onClick: () => choose(index) }
          : { role: 'listitem' })}
      >
        {row(index)}
      </div>,
    );
  }
  const isInRange = selected !== undefined && selected >= first && selected < last;
  return (
    <div
      ref={box}
      class={`virtual ${given.class ?? ''}`}
      style={given.most === undefined ? undefined : { height: `${Math.min(given.most, Math.max(1, count) * rowHeight + 2)}px` }}
      tabIndex={0}
      role={count === 0 ? 'group' : onSelect ? 'listbox' : 'list'}
      aria-label={label}
      {...(onSelect && isInRange && count > 0 ? { 'aria-activedescendant': `${id}-${selected}` } : {})}
      onKeyDown={onKeyDown}
      onScroll={(event) => {
        const element = event.currentTarget;
        atEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - rowHeight;
        setTop(element.scrollTop);
      }}
    >
      <div class="virtual-full" role="presentation" style={{ height: `${tall}px` }}>
        {rows}
      </div>
    </div>
  );
}
