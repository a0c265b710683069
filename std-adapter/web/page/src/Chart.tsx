import 'uplot/dist/uPlot.min.css';
import uPlot from 'uplot';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { clock } from './text';
import { theme } from './theme';

export interface Series {
  label: string;
  values: (number | null)[];
}

interface Properties {
  /** What a screen reader says of the picture. */
  label: string;
  /** Rises with each point, in seconds since 1970 or in counts. */
  x: number[];
  isTime: boolean;
  xLabel?: (x: number) => string;
  series: Series[];
  /** Rises when the data have changed. */
  version: number;
  height?: number;
}

const LIGHT = ['#0b57d0', '#b3261e', '#116329', '#8a4600', '#7627bb', '#00677c'];
const DARK = ['#7ab7ff', '#ff8a80', '#5ad17a', '#f0b64a', '#d3a6ff', '#4dd0e1'];

export function colorOf(index: number): string {
  const colors = theme.isDark.value ? DARK : LIGHT;
  return colors[index % colors.length] as string;
}

/** A value as it is drawn. One beyond what an axis can have is a gap: the space between two values must be a number, too. */
export function drawable(value: number): number | null {
  return Math.abs(value) < 1e300 ? value : null;
}

/** A time of day, as exact as the steps of the axis need. */
function timeLabel(seconds: number, step: number): string {
  return clock(seconds * 1000).slice(0, step < 0.1 ? 12 : step < 1 ? 10 : 8);
}

/** A line chart. A missing value is a gap in its line. Zoom by dragging, or with the buttons. */
export function Chart({ label, x, isTime, xLabel, series, version, height = 300 }: Properties) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  /** The names of the series that the plot was made for. */
  const drawn = useRef<string | null>(null);
  const zoom = useRef<{ min: number; max: number } | null>(null);
  const dark = theme.isDark.value;
  const names = series.map((one) => one.label).join('\n');
  const latest = useRef({ names, data: [] as unknown as uPlot.AlignedData });
  latest.current = { names, data: [x, ...series.map((one) => one.values)] as uPlot.AlignedData };
  /** A plot of other series would fail: the next effect makes another. */
  const draw = () => {
    if (drawn.current === latest.current.names) plot.current?.setData(latest.current.data);
  };

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(document.documentElement);
    const [ink, grid] = [style.getPropertyValue('--quiet'), style.getPropertyValue('--line')];
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    const options: uPlot.Options = {
      width: element.clientWidth || 300,
      height,
      legend: { show: false },
      cursor: { drag: { x: true, y: false }, points: { size: 7 } },
      scales: {
        x: {
          time: isTime,
          // While the user looks at a part, new points do not move it.
          range: (_, min, max) => (zoom.current ? [zoom.current.min, zoom.current.max] : min === max ? [min - 1, max + 1] : [min, max]),
        },
      },
      axes: [
        { ...axis, space: isTime ? 105 : 70, values: (_: uPlot, splits: number[], __: number, ___: number, step: number) => splits.map((split) => (xLabel ? (Number.isInteger(split) ? xLabel(split) : '') : timeLabel(split, step))) },
        { ...axis, size: 64 },
      ],
      series: [{}, ...series.map((one, index) => ({ label: one.label, stroke: colorOf(index), width: 2, spanGaps: false, points: { show: undefined as unknown as boolean } }))],
      hooks: {
        setSelect: [
          (self) => {
            if (self.select.width < 4) return;
            zoom.current = { min: self.posToVal(self.select.left, 'x'), max: self.posToVal(self.select.left + self.select.width, 'x') };
          },
        ],
      },
    };
    const made = new uPlot(options, latest.current.data, element);
    made.over.addEventListener('dblclick', () => all());
    plot.current = made;
    drawn.current = names;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [names, dark, isTime, height]);
  useEffect(() => {
    // The picture of a hidden page is drawn when it is seen again.
    const request = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(request);
  }, [version, names, dark]);

  const look = (min: number, max: number) => {
    zoom.current = { min, max };
    draw();
  };
  const all = () => {
    zoom.current = null;
    draw();
  };
  const move = (act: (min: number, max: number) => [number, number]) => () => {
    const { min, max } = plot.current?.scales.x ?? {};
    if (min != null && max != null) look(...act(min, max));
  };
  return (
    <div class="chart">
      <div ref={box} role="img" aria-label={label} class="canvas" data-points={x.length} />
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
      </div>
    </div>
  );
}
