/** What a ring shows of itself. */
interface Items<T> {
  readonly length: number;
  readonly dropped: number;
  at(index: number): T | undefined;
}

/** The items of a ring that match, kept while it changes: each item is tested once. */
export class Matching<T> {
  #found: T[] = [];
  #numbers: number[] = [];
  #start = 0;
  /** How many items of the ring were seen, those that it has dropped among them. */
  #seen = 0;

  constructor(
    private readonly ring: Items<T>,
    private readonly matches: (item: T) => boolean,
  ) {}

  /** Looks at what is new. */
  refresh(): this {
    const { ring } = this;
    const total = ring.dropped + ring.length;
    // It was cleared.
    if (total < this.#seen) [this.#found, this.#numbers, this.#start, this.#seen] = [[], [], 0, 0];
    for (let at = Math.max(0, this.#seen - ring.dropped); at < ring.length; at++) {
      const item = ring.at(at) as T;
      if (!this.matches(item)) continue;
      this.#found.push(item);
      this.#numbers.push(ring.dropped + at);
    }
    this.#seen = total;
    while (this.#start < this.#found.length && (this.#numbers[this.#start] as number) < ring.dropped) this.#start += 1;
    if (this.#start > 1024 && this.#start > this.#found.length / 2) {
      this.#found = this.#found.slice(this.#start);
      this.#numbers = this.#numbers.slice(this.#start);
      this.#start = 0;
    }
    return this;
  }

  get length(): number {
    return this.#found.length - this.#start;
  }

  at(index: number): T | undefined {
    return this.#found[this.#start + index];
  }

  *[Symbol.iterator](): Iterator<T> {
    for (let at = this.#start; at < this.#found.length; at++) yield this.#found[at] as T;
  }
}
