import 'uplot/dist/uPlot.min.css';
import uPlot from 'uplot';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { type Scale, TIME_STEPS, placeIn, scaleOf, timeLabels, timeMarks, timeSpace } from './axis';
import { theme } from './theme';

export interface Line {
  label: string;
  /** Which colour and dash it has: lines with different numbers look different. */
  slot: number;
  unit?: string;
  /** Which scale it is on; lines of one scale share an axis. Without it, all do. */
  scale?: number;
}

/** What a chart draws: rising places on the x axis, and the values of each line there. A null is a gap. */
export interface Points {
  x: number[];
  ys: (number | null)[][];
}

interface Properties {
  /** What a screen reader says of the picture. */
  label: string;
  lines: Line[];
  /** The points between two places on the x axis, at most about `room`. */
  read: (from: number, to: number, room: number) => Points;
  /** The first and the last place, in seconds since 1970 or in counts; null: there are no points. */
  extent: [number, number] | null;
  /** How many points there are. */
  count: number;
  isTime: boolean;
  xLabel?: (x: number) => string;
  /** Rises when the data have changed. */
  version: number;
  height?: number;
  /** Told where the cursor is; null: nowhere. */
  onCursor?: (x: number | null) => void;
  /** Where the cursor is, in words. */
  cursorText?: string;
}

const LIGHT = ['#0b57d0', '#b3261e', '#116329', '#8a4600', '#7627bb', '#00677c', '#a0155c', '#4c5200'];
const DARK = ['#7ab7ff', '#ff8a80', '#5ad17a', '#f0b64a', '#d3a6ff', '#4dd0e1', '#ff8fc7', '#c5cf5a'];
const DASHES: number[][] = [[], [8, 4], [2, 3], [12, 4, 2, 4], [16, 6], [5, 2, 2, 2, 2, 2], [1, 5], [10, 3, 5, 3]];

/** The colour and the dash of a slot: 64 slots differ. */
export function look(slot: number): { color: string; dash: number[] } {
  const colors = theme.isDark.value ? DARK : LIGHT;
  return { color: colors[slot % colors.length] as string, dash: DASHES[Math.floor(slot / colors.length) % DASHES.length] as number[] };
}

/** A value as it is drawn. One beyond what an axis can have is a gap: the space between two values must be a number, too. */
export function drawable(value: number): number | null {
  return Math.abs(value) < 1e300 ? value : null;
}

/** Steps of an axis that counts. */
const WHOLE_STEPS = Array.from({ length: 13 }, (_, exponent) => [1, 2, 5].map((digit) => digit * 10 ** exponent)).flat();
/** The room that a mark with its label takes along the axis of values, in pixels. */
const VALUE_SPACE = 38;
/** The least width of an axis of values: the first label of the time axis reaches below it. */
const LEAST_SIZE = 42;
const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
/** Wider charts have an axis for each scale, narrower ones for two. */
const WIDE = 600;

let measure: CanvasRenderingContext2D | null = null;
function widthOf(text: string): number {
  measure ??= document.createElement('canvas').getContext('2d') as CanvasRenderingContext2D;
  measure.font = FONT;
  return measure.measureText(text).width;
}

/** A line chart. A missing value is a gap in its line, and a value between two gaps is a dot. Zoom by dragging, or with the buttons. */
export function Chart(given: Properties) {
  const { label, lines, isTime, version, height = 300, onCursor } = given;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const zoom = useRef<{ min: number; max: number } | null>(null);
  const scales = useRef<Scale[]>([]);
  const points = useRef<Points>({ x: [], ys: [] });
  const latest = useRef(given);
  latest.current = given;
  const dark = theme.isDark.value;
  const of = (line: Line) => line.scale ?? 0;
  const kinds = [...new Set(lines.map(of))].sort((a, b) => a - b);
  const shape = JSON.stringify([lines.map((line) => [line.label, line.slot, line.unit, of(line)]), dark, theme.isForced.value, isTime, height]);
  /** What the plot was made for: it cannot draw other lines. */
  const made = useRef('');

  const range = (): [number, number] => {
    const { extent } = latest.current;
    if (zoom.current) return [zoom.current.min, zoom.current.max];
    if (!extent) return [0, 1];
    return extent[0] < extent[1] ? extent : [extent[0] - (isTime ? 0.5 : 1), extent[1] + (isTime ? 0.5 : 1)];
  };
  /** Reads what is in sight, and places it in its scales. */
  const data = (width: number): uPlot.AlignedData => {
    const [from, to] = range();
    const { lines, read } = latest.current;
    points.current = read(from, to, Math.max(400, 4 * width));
    const { x, ys } = points.current;
    // What belongs to the lines only, beyond the edges, does not count for the scale.
    let [begin, end] = [0, x.length];
    while (begin < end && (x[begin] as number) < from) begin++;
    while (end > begin && (x[end - 1] as number) > to) end--;
    scales.current = kinds.map((kind) => {
      let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
      lines.forEach((line, at) => {
        if (of(line) !== kind) return;
        const values = ys[at] as (number | null)[];
        for (let i = begin; i < end; i++) {
          const value = values[i];
          if (value == null) continue;
          if (value < least) least = value;
          if (value > most) most = value;
        }
      });
      return scaleOf(least, most, Math.max(2, Math.floor((height - 60) / VALUE_SPACE)));
    });
    const placed = lines.map((line, at) => {
      const scale = scales.current[kinds.indexOf(of(line))] as Scale;
      return (ys[at] as (number | null)[]).map((value) => (value === null ? null : placeIn(scale, value)));
    });
    return [x, ...placed];
  };
  const draw = () => {
    if (plot.current && made.current === shape && box.current) plot.current.setData(data(box.current.clientWidth));
  };
  const drawing = useRef(draw);
  drawing.current = draw;

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    // The style sheet gives both, those that the system forces among them.
    const { color: ink, textDecorationColor: grid } = getComputedStyle(element);
    const axis = { stroke: ink, font: FONT, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 6 } };
    const width = element.clientWidth || 300;
    const shown = width < WIDE ? kinds.slice(0, 2) : kinds;
    const options: uPlot.Options = {
      width,
      height,
      // Labels in the middle of their marks have room at both ends.
      padding: [12, shown.length > 1 ? 8 : isTime ? 42 : 28, 0, 4],
      legend: { show: false },
      cursor: { drag: { x: true, y: false, setScale: false }, points: { size: 7 }, y: false },
      scales: {
        x: { time: isTime, range: () => range() },
        ...Object.fromEntries(kinds.map((kind) => [`y${kind}`, { range: (): [number, number] => [0, 1] }])),
      },
      axes: [
        {
          ...axis,
          space: isTime ? (_, __, min, max, size) => timeSpace(max - min, size) : 70,
          ...(isTime ? { incrs: TIME_STEPS, splits: (_, __, min, max, step) => timeMarks(min, max, step), values: (_, marks) => timeLabels(marks), size: 46 } : { incrs: WHOLE_STEPS, values: (_: uPlot, splits: number[]) => splits.map((split) => latest.current.xLabel?.(split) ?? String(split)) }),
        },
        ...shown.map((kind, at): uPlot.Axis => {
          const scale = () => scales.current[kinds.indexOf(kind)] as Scale;
          const units = [...new Set(lines.filter((line) => of(line) === kind).map((line) => line.unit ?? ''))];
          const unit = units.some(Boolean) ? units.map((one) => one || 'no unit').join(', ') : '';
          // One short unit stands at each mark, others beside the axis.
          const suffix = units.length === 1 && unit.length <= 5 && unit !== '' ? ` ${unit}` : '';
          return {
            ...axis,
            ...(at > 0 ? { grid: { show: false } } : {}),
            scale: `y${kind}`,
            side: at % 2 === 0 ? 3 : 1,
            // The marks are those of the scale, whose digits do not depend on what doubles can do.
            incrs: [1],
            space: 1,
            splits: () => scale().ticks.map((tick) => placeIn(scale(), tick.value)),
            values: () => scale().ticks.map((tick) => tick.label + suffix),
            size: (_, values) => Math.max(LEAST_SIZE, Math.ceil(Math.max(0, ...(values ?? []).map(widthOf))) + 16),
            ...(unit !== '' && suffix === '' ? { label: unit.length > 30 ? `${unit.slice(0, 30)}…` : unit, labelFont: `bold ${FONT}`, labelSize: 20, labelGap: 0 } : {}),
          };
        }),
      ],
      series: [
        {},
        ...lines.map((line, at): uPlot.Series => {
          const { color, dash } = look(line.slot);
          return {
            label: line.label,
            scale: `y${of(line)}`,
            stroke: color,
            width: 2,
            dash,
            spanGaps: false,
            points: {
              size: 6,
              fill: color,
              // Where points are far apart each has its dot; a value between two gaps always has one.
              filter: (self, _, all) => {
                const values = self.data[at + 1] as (number | null)[];
                const found: number[] = [];
                for (let i = 0; i < values.length; i++) {
                  if (values[i] != null && (all || (values[i - 1] == null && values[i + 1] == null))) found.push(i);
                }
                return found;
              },
            },
          };
        }),
      ],
      hooks: {
        setSelect: [
          (self) => {
            if (self.select.width < 4) return;
            lookAt(self.posToVal(self.select.left, 'x'), self.posToVal(self.select.left + self.select.width, 'x'));
            self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          },
        ],
        setCursor: [
          (self) => {
            const { idx } = self.cursor;
            latest.current.onCursor?.(idx == null ? null : ((self.data[0] as number[])[idx] ?? null));
          },
        ],
      },
    };
    const plotted = new uPlot(options, data(width), element);
    plotted.over.addEventListener('dblclick', () => all());
    plot.current = plotted;
    made.current = shape;
    const isWide = width >= WIDE;
    const watch = new ResizeObserver(() => {
      plotted.setSize({ width: element.clientWidth, height });
      // Another number of axes: a new plot has them.
      if (element.clientWidth >= WIDE !== isWide && kinds.length > 2) made.current = '';
      drawing.current();
    });
    watch.observe(element);
    return () => {
      watch.disconnect();
      plotted.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => {
    // The picture of a hidden page is drawn when it is seen again.
    const request = requestAnimationFrame(() => drawing.current());
    return () => cancelAnimationFrame(request);
  }, [version, shape, given.extent?.[0], given.extent?.[1]]);

  const lookAt = (min: number, max: number) => {
    zoom.current = { min, max };
    drawing.current();
  };
  const all = () => {
    zoom.current = null;
    drawing.current();
  };
  const move = (act: (min: number, max: number) => [number, number]) => () => lookAt(...act(...range()));
  /** The keyboard's cursor goes from one point to the next. */
  const onKeyDown = (event: KeyboardEvent) => {
    const self = plot.current;
    const x = self?.data[0] as number[] | undefined;
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: Number.NEGATIVE_INFINITY, End: Number.POSITIVE_INFINITY }[event.key];
    if (!self || !x || x.length === 0) return;
    if (event.key === 'Escape') return self.setCursor({ left: -10, top: -10 });
    if (step === undefined) return;
    event.preventDefault();
    const [from, to] = range();
    const now = self.cursor.idx ?? (step < 0 ? x.length : -1);
    const seen = (at: number) => (x[at] as number) >= from && (x[at] as number) <= to;
    let next = Math.max(0, Math.min(x.length - 1, now + step));
    while (!seen(next) && next > 0 && next < x.length - 1) next += step > 0 && Number.isFinite(step) ? 1 : step === Number.NEGATIVE_INFINITY ? 1 : -1;
    self.setCursor({ left: self.valToPos(x[next] as number, 'x'), top: self.over.clientHeight / 2 });
  };
  return (
    <div class="chart">
      <div class="canvas-frame" tabIndex={0} role="group" aria-roledescription="chart" aria-label={onCursor ? 'Chart: the arrow keys move the cursor' : 'Chart'} onKeyDown={onKeyDown}>
        <div ref={box} role="img" aria-label={label} class="canvas" data-points={given.count} />
      </div>
      <div class="buttons" role="group" aria-label="Zoom">
        <button type="button" class="small" onClick={move((min, max) => [min + (max - min) / 4, max - (max - min) / 4])}>
          Zoom in
        </button>
        <button type="button" class="small" onClick={move((min, max) => [min - (max - min) / 2, max + (max - min) / 2])}>
          Zoom out
        </button>
        <button type="button" class="small" onClick={move((min, max) => [min - (max - min) / 4, max - (max - min) / 4])}>
          Earlier
        </button>
        <button type="button" class="small" onClick={move((min, max) => [min + (max - min) / 4, max + (max - min) / 4])}>
          Later
        </button>
        <button type="button" class="small" onClick={all}>
          Show all
        </button>
        {given.cursorText && <span class="quiet cursor-text">{given.cursorText}</span>}
      </div>
    </div>
  );
}
