/** What would be invisible, or reorder or hide the text around it: controls, marks of direction, line separators, tags. */
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

/** Text of a device, a file or a server, for display: what cannot be seen becomes a visible mark. */
export function shown(text: string): string {
  return text.replace(UNSAFE, (mark) => {
    const code = mark.codePointAt(0) ?? 0;
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? '\u2421' : '\ufffd';
  });
}

/** The same on one line. */
export function oneLine(text: string, most = 400): string {
  const cut = text.length > most ? `${text.slice(0, most)}…` : text;
  return shown(cut.replace(/[\r\n\t]+/g, ' '));
}

/** The beginning of a long text, and how much more there is. */
export function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)}… (${text.length - most} more characters)` : text;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}

export function milliseconds(time: number): string {
  if (time < 1000) return `${time < 10 ? Number(time.toFixed(1)) : Math.round(time)} ms`;
  if (time < 60_000) return `${(time / 1000).toFixed(time < 10_000 ? 2 : 1)} s`;
  const seconds = Math.round(time / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

export function bytes(count: number): string {
  if (count < 1024) return plural(count, 'byte');
  const [size, unit] = count < 1024 ** 2 ? [count / 1024, 'KB'] : count < 1024 ** 3 ? [count / 1024 ** 2, 'MB'] : [count / 1024 ** 3, 'GB'];
  return `${size.toFixed(size < 10 ? 1 : 0)} ${unit}`;
}

export function clock(time: number): string {
  const date = new Date(time);
  const two = (value: number) => String(value).padStart(2, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, '0')}`;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Lets the user save a text as a file. */
export function save(name: string, type: string, ...parts: BlobPart[]): void {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
