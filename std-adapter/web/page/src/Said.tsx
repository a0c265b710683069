import { hasEscapes, pieces, styleOf } from './ansi';
import { oneLine, shown } from './text';
import { theme } from './theme';

/** A text of a device, with the colours of its escape sequences; never as markup. `line`: on one line, and not longer than this. */
export function Said({ text, line }: { text: string; line?: number }) {
  const cut = line !== undefined && text.length > 4 * line ? text.slice(0, 4 * line) : text;
  if (!hasEscapes(cut)) return <>{line === undefined ? shown(cut) : oneLine(cut, line)}</>;
  const isDark = theme.isDark.value;
  let left = line ?? Number.POSITIVE_INFINITY;
  const parts = [];
  for (const [at, piece] of pieces(cut).entries()) {
    if (left <= 0) break;
    const own = line === undefined ? shown(piece.text) : oneLine(piece.text, left);
    left -= piece.text.length;
    const { color, background } = theme.isForced.value ? { color: null, background: null } : styleOf(piece, isDark);
    const lines = [piece.isUnderlined && 'underline', piece.isStruck && 'line-through'].filter(Boolean).join(' ');
    if (!color && !background && !piece.isBold && !piece.isItalic && !lines) parts.push(own);
    else {
      parts.push(
        <span
          key={at}
          class="ansi"
          style={{ color: color ?? '', background: background ?? '', fontWeight: piece.isBold ? 'bold' : '', fontStyle: piece.isItalic ? 'italic' : '', textDecoration: lines }}
        >
          {own}
        </span>,
      );
    }
  }
  return <>{parts}</>;
}
