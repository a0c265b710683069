import ansiRegex from 'ansi-regex';
import { type Color, createAnsiSequenceParser, createColorPalette } from 'ansi-sequence-parser';

/** A piece of a text that looks the same all over. Colours are `#rrggbb`; a name is one of the sixteen that the theme gives. */
export interface Piece {
  text: string;
  color: string | null;
  ground: string | null;
  isBold: boolean;
  isItalic: boolean;
  isUnderlined: boolean;
  isStruck: boolean;
  isDim: boolean;
}

const ESCAPES = /[\u001b\u0080-\u009f]/;
const SEQUENCES = ansiRegex();
/** What sets colours: SGR, with its arguments. */
const COLORS = /^(?:\u001b\[|\u009b)([\d;:]*)m$/;
const PALETTE = createColorPalette();

/** Whether a text has escape sequences. */
export function hasEscapes(text: string): boolean {
  return ESCAPES.test(text);
}

/** A text without the escape sequences of terminals. */
export function plain(text: string): string {
  return hasEscapes(text) ? text.replace(SEQUENCES, '') : text;
}

/** The pieces of a text with their colours. All sequences but those of colours are left out: they move a cursor that is not here. */
export function pieces(text: string): Piece[] {
  const kept = text.replace(SEQUENCES, (sequence) => {
    const found = COLORS.exec(sequence);
    return found ? `\u001b[${normal(found[1] as string)}m` : '';
  });
  return createAnsiSequenceParser()
    .parse(kept)
    .map(({ value, foreground, background, decorations }) => {
      const swapped = decorations.has('reverse');
      const [front, back] = swapped ? [background, foreground] : [foreground, background];
      const has = (name: Parameters<typeof decorations.has>[0]) => decorations.has(name);
      return {
        text: value,
        color: front ? colorOf(front) : swapped ? 'ground' : null,
        ground: back ? colorOf(back) : swapped ? 'ink' : null,
        isBold: has('bold'),
        isItalic: has('italic'),
        isUnderlined: has('underline'),
        isStruck: has('strikethrough'),
        isDim: has('dim'),
      };
    });
}

/** The arguments as the parser reads them: nothing is 0, and colons divide as semicolons do (`38:2::r:g:b` has an empty place for a colour space). */
function normal(given: string): string {
  if (given === '') return '0';
  return given.replace(/([34]8):2:[^:;]*:(\d+:\d+:\d+)/g, '$1;2;$2').replace(/:/g, ';').replace(/(^|;)(?=;|$)/g, '$10');
}

function colorOf(color: Color): string {
  return color.type === 'named' ? color.name : PALETTE.value(color);
}

/** Colours of the sixteen names on a ground of their own. */
const NAMED: Record<string, string> = {
  black: '#1a1f26',
  red: '#b3261e',
  green: '#116329',
  yellow: '#f0b64a',
  blue: '#0b57d0',
  magenta: '#7627bb',
  cyan: '#00677c',
  white: '#e6ebf2',
  brightBlack: '#525c69',
  brightRed: '#ff8a80',
  brightGreen: '#5ad17a',
  brightYellow: '#fbe29a',
  brightBlue: '#7ab7ff',
  brightMagenta: '#d3a6ff',
  brightCyan: '#4dd0e1',
  brightWhite: '#ffffff',
};

/** The style of a piece on the page: a colour that can be read on its ground. `null`: the page's own. */
export function styleOf(piece: Piece, isDark: boolean): { color: string | null; background: string | null } {
  const [ground, ink, tint] = isDark ? ['#0f141b', '#e6ebf2', '#1b2c45'] : ['#ffffff', '#1a1f26', '#fce8e6'];
  const real = (color: string) => (color === 'ground' ? ground : color === 'ink' ? ink : (NAMED[color] ?? color));
  const background = piece.ground === null ? null : real(piece.ground);
  if (piece.color === null && background === null) return { color: piece.isDim ? (isDark ? '#a3b0be' : '#525c69') : null, background };
  // The text may stand on each of the page's surfaces. What can be read on this tint can be read on all of them.
  return { color: readable(piece.color === null ? ink : real(piece.color), background ?? tint), background };
}

/** A colour, moved towards white or black until it can be read on this ground (WCAG 2.2, 1.4.3). */
function readable(color: string, ground: string): string {
  const target = luminance(ground) > 0.18 ? 0 : 255;
  let parts = rgb(color);
  for (let step = 0; step < 20 && contrast(parts, rgb(ground)) < 4.6; step++) parts = parts.map((part) => Math.round(part + (target - part) * 0.15)) as [number, number, number];
  if (contrast(parts, rgb(ground)) < 4.6) parts = [target, target, target];
  return `#${parts.map((part) => part.toString(16).padStart(2, '0')).join('')}`;
}

function rgb(color: string): [number, number, number] {
  return [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16)) as [number, number, number];
}

function luminance(color: string | [number, number, number]): number {
  const [r, g, b] = (typeof color === 'string' ? rgb(color) : color).map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4)) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: [number, number, number], b: [number, number, number]): number {
  const [low, high] = [luminance(a), luminance(b)].sort((one, other) => one - other) as [number, number];
  return (high + 0.05) / (low + 0.05);
}
