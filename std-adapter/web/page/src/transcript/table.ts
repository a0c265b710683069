type Numbers = Float64Array | Float32Array | Int32Array | Uint32Array | Uint8Array;

/** Columns of numbers that grow: a line of a file takes some 40 bytes, and no object. */
export class Table<Names extends string> {
  length = 0;
  #room = 1024;
  readonly #columns: Record<Names, Numbers>;

  constructor(kinds: Record<Names, new (length: number) => Numbers>) {
    this.#columns = Object.fromEntries(Object.entries<new (length: number) => Numbers>(kinds).map(([name, Kind]) => [name, new Kind(this.#room)])) as Record<Names, Numbers>;
  }

  add(values: Record<Names, number>): number {
    if (this.length === this.#room) {
      this.#room *= 2;
      for (const name of Object.keys(this.#columns) as Names[]) {
        const old = this.#columns[name];
        const Kind = old.constructor as new (length: number) => Numbers;
        const grown = new Kind(this.#room);
        grown.set(old);
        this.#columns[name] = grown;
      }
    }
    for (const name of Object.keys(this.#columns) as Names[]) this.#columns[name][this.length] = values[name];
    return this.length++;
  }

  get(name: Names, row: number): number {
    return this.#columns[name][row] as number;
  }

  set(name: Names, row: number, value: number): void {
    this.#columns[name][row] = value;
  }
}
