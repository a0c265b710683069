// What the tests of the chart run in Chromium: the page's own chart and samples, and a record of the texts that were written on its canvas.
import { h, render } from 'preact';
import { Chart, look } from '../page/src/Chart';
import { Column, Samples } from '../page/src/samples';

interface Written {
  text: string;
  left: number;
  right: number;
  top: number;
  bottom: number;
  x: number;
  y: number;
}

const written = new WeakMap<HTMLCanvasElement, Written[]>();
const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.clearRect = function (x, y, width, height) {
  if (width >= this.canvas.width) written.set(this.canvas, []);
  clearRect.call(this, x, y, width, height);
};
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  const { width, actualBoundingBoxAscent: up, actualBoundingBoxDescent: down } = this.measureText(text);
  const left = { right: x - width, end: x - width, center: x - width / 2 }[this.textAlign as string] ?? x;
  // Where the text lies on the canvas, if it is turned.
  const to = this.getTransform();
  const corners = [[left, y - up], [left + width, y + down]].map(([a, b]) => to.transformPoint({ x: a, y: b }));
  const middle = to.transformPoint({ x, y });
  const [xs, ys] = [corners.map((one) => one.x), corners.map((one) => one.y)];
  written.get(this.canvas)?.push({ text, left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys), x: middle.x, y: middle.y });
  fillText.call(this, text, x, y);
};

interface Series {
  output: string;
  texts: (string | null)[];
  slot?: number;
  scale?: number;
}

/** Draws series, and reads back what stands on the canvas. */
async function draw(series: Series[], width: number, step = 1) {
  const root = document.getElementById('app') as HTMLElement;
  root.style.width = `${width}px`;
  const samples = new Samples();
  const columns = series.map((one) => new Column(one.output));
  const begin = 1_700_000_000;
  const count = Math.max(...series.map((one) => one.texts.length));
  const values: (number | null)[][] = series.map(() => []);
  for (let at = 0; at < count; at++) {
    const row = new Map<Column, string>();
    series.forEach((one, index) => {
      const text = one.texts[at];
      if (text != null) row.set(columns[index] as Column, text);
    });
    samples.push(begin + at * step, row);
    columns.forEach((column, index) => values[index]?.push(row.has(column) ? (column.now?.value ?? null) : null));
  }
  render(null, root);
  const [first, last] = [samples.first ?? 0, samples.last ?? 0];
  render(
    h(Chart, {
      label: 'A chart',
      lines: series.map((one, at) => ({ label: one.output, slot: one.slot ?? at, unit: columns[at]?.unit, scale: one.scale ?? 0 })),
      read: (from, to, room) => samples.read(columns, from, to, room),
      extent: [first, last],
      count: samples.length,
      isTime: true,
      version: 1,
    }),
    root,
  );
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const canvas = root.querySelector('canvas') as HTMLCanvasElement;
  const over = root.querySelector('.u-over') as HTMLElement;
  const [outer, inner] = [canvas.getBoundingClientRect(), over.getBoundingClientRect()];
  const plot = { left: inner.left - outer.left, top: inner.top - outer.top, width: inner.width, height: inner.height };
  const pixels = canvas.getContext('2d')?.getImageData(0, 0, canvas.width, canvas.height).data as Uint8ClampedArray;
  const one = first === last;
  const places = values.map((own) => own.map((value, at) => (value === null ? null : plot.left + plot.width * (one ? 0.5 : (at * step) / (last - first)))));
  /** Whether a pixel of the series' colour is near a place. */
  const isSeen = (index: number, x: number, y: number, near: number) => {
    const { color } = look(series[index]?.slot ?? index);
    const [r, g, b] = [1, 3, 5].map((from) => Number.parseInt(color.slice(from, from + 2), 16)) as [number, number, number];
    for (let dy = -near; dy <= near; dy++) {
      for (let dx = -near; dx <= near; dx++) {
        const [px, py] = [Math.round(x) + dx, Math.round(y) + dy];
        if (px < 0 || py < 0 || px >= canvas.width || py >= canvas.height) continue;
        const at = 4 * (py * canvas.width + px);
        if (Math.abs((pixels[at] as number) - r) + Math.abs((pixels[at + 1] as number) - g) + Math.abs((pixels[at + 2] as number) - b) < 60) return true;
      }
    }
    return false;
  };
  /** Which of these places, as x and y, have the series' colour. */
  const seen = (index: number, wanted: [number, number][], near = 3) => wanted.map(([x, y]) => isSeen(index, x, y, near));
  Object.assign(globalThis, { seen });
  return {
    written: written.get(canvas) ?? [],
    canvas: { width: canvas.width, height: canvas.height },
    plot,
    values,
    places,
    texts: columns.map((column) => ({ ...samples.extremes(column), problem: column.problem, problems: column.problems, unit: column.unit, all: series.map((_, at) => at).length })),
    kept: columns.map((column) => Array.from({ length: count }, (_, at) => samples.textAt(column, samples.near(begin + at * step) ?? 0))),
    looks: series.map((one, at) => look(one.slot ?? at)),
  };
}

/** A day of samples, ten a second, of several outputs; how long it takes to draw it. */
async function day(outputs: number) {
  const root = document.getElementById('app') as HTMLElement;
  root.style.width = '1200px';
  const samples = new Samples();
  const columns = Array.from({ length: outputs }, (_, at) => new Column(`output-${at}`));
  const begin = 1_700_000_000;
  const rows = 24 * 3600 * 10;
  for (let at = 0; at < rows; at++) {
    samples.push(begin + at / 10, new Map(columns.map((column, index) => [column, (3.3 + 0.01 * Math.sin(at / 1000 + index) + ((at * 7919) % 13) / 1e4).toFixed(4)])));
    if (at % 50_000 === 0) await new Promise((done) => setTimeout(done));
  }
  render(null, root);
  const show = (version: number) =>
    render(
      h(Chart, {
        label: 'A day',
        lines: columns.map((column, slot) => ({ label: column.output, slot })),
        read: (from, to, room) => samples.read(columns, from, to, room),
        extent: [samples.first ?? 0, samples.last ?? 1],
        count: samples.length,
        isTime: true,
        version,
      }),
      root,
    );
  show(0);
  const times: number[] = [];
  for (let version = 1; version <= 10; version++) {
    samples.push(begin + rows / 10 + version / 10, new Map(columns.map((column) => [column, '3.3000'])));
    await new Promise((done) => requestAnimationFrame(done));
    const before = performance.now();
    show(version);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - before);
  }
  // Kept, so that it is there when the memory is measured.
  Object.assign(globalThis, { kept: samples, cols: columns });
  return { rows: samples.length, dropped: samples.dropped, slowest: Math.max(...times), middle: times.sort((a, b) => a - b)[5] };
}

Object.assign(globalThis, { draw, day });
