/** A list of bounded length and size: what is old makes room for what is new, and is counted. */
export class Ring<T> {
  #items: T[] = [];
  #start = 0;
  #size = 0;
  /** How many items were dropped. */
  dropped = 0;

  constructor(
    private readonly limit: number,
    private readonly sizeLimit = Number.POSITIVE_INFINITY,
    private readonly sizeOf: (item: T) => number = () => 0,
  ) {}

  get length(): number {
    return this.#items.length - this.#start;
  }

  push(item: T): void {
    this.#items.push(item);
    this.#size += this.sizeOf(item);
    while (this.length > this.limit || (this.#size > this.sizeLimit && this.length > 1)) {
      this.#size -= this.sizeOf(this.#items[this.#start] as T);
      // The slot lets go of its item at once; the array is cut when half of it is empty.
      (this.#items as unknown[])[this.#start++] = undefined;
      this.dropped += 1;
    }
    if (this.#start > 1024 && this.#start > this.#items.length / 2) {
      this.#items = this.#items.slice(this.#start);
      this.#start = 0;
    }
  }

  at(index: number): T | undefined {
    return this.#items[this.#start + index];
  }

  *[Symbol.iterator](): Iterator<T> {
    for (let at = this.#start; at < this.#items.length; at++) yield this.#items[at] as T;
  }

  clear(): void {
    this.#items = [];
    this.#start = 0;
    this.#size = 0;
    this.dropped = 0;
  }
}
