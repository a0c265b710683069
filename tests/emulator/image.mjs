// Reads an RP2040 image: the ELF that cargo makes, a UF2 made of it, or raw bytes from flash offset 0 (boot2, vector table, code).
import fs from 'node:fs';

export const FLASH = { start: 0x10000000, size: 16 * 1024 * 1024 };
export const RAM = { start: 0x20000000, size: 264 * 1024 };

/** { segments: [{ address, bytes }], sizes, symbols }; sizes and symbols are null for what is no ELF. */
export function readImage(path) {
  const file = fs.readFileSync(path);
  if (file.length < 0x108) throw new Error(`${path}: too short for an RP2040 image`);
  if (file.readUInt32LE(0) === UF2_MAGIC[0]) return bootable(readUf2(path, file));
  if (file.readUInt32BE(0) !== 0x7f454c46) {
    return bootable({ path, segments: [{ address: FLASH.start, bytes: file }], sizes: null, symbols: null });
  }
  return bootable(readElf(path, file));
}

/** Refuses an image that the boot ROM would not start: its first 252 bytes need a CRC-32 after them (datasheet §2.8.1.3.1). */
function bootable(image) {
  const stage = image.segments.find(({ address, bytes }) => address === FLASH.start && bytes.length >= 256)?.bytes;
  if (!stage || stage.readUInt32LE(252) !== checksum(stage.subarray(0, 252))) {
    throw new Error(`${image.path}: does not start by itself: no second-stage boot loader at its begin, or a damaged one`);
  }
  return image;
}

/** CRC-32/MPEG-2. */
function checksum(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte << 24;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x80000000 ? (crc << 1) ^ 0x04c11db7 : crc << 1;
  }
  return crc >>> 0;
}

const UF2_MAGIC = [0x0a324655, 0x9e5d5157, 0x0ab16f30];
const UF2_RP2040 = 0xe48bff56;

/** Blocks of 512 bytes: https://github.com/microsoft/uf2. They need not be in order. */
function readUf2(path, file) {
  const blocks = [];
  for (let at = 0; at + 512 <= file.length; at += 512) {
    const word = (n) => file.readUInt32LE(at + 4 * n);
    const [length, family] = [word(4), word(7)];
    const magic = [word(0), word(1), file.readUInt32LE(at + 508)];
    if (magic.some((value, i) => value !== UF2_MAGIC[i]) || length > 476 || family !== UF2_RP2040) {
      throw new Error(`${path}: not a UF2 file for the RP2040`);
    }
    blocks.push({ address: word(3), bytes: file.subarray(at + 32, at + 32 + length) });
  }
  return { path, segments: blocks, sizes: null, symbols: null };
}

function readElf(path, file) {
  const [ELFCLASS32, LITTLE_ENDIAN, EM_ARM, PT_LOAD] = [1, 1, 40, 1];
  if (file[4] !== ELFCLASS32 || file[5] !== LITTLE_ENDIAN || file.readUInt16LE(18) !== EM_ARM) {
    throw new Error(`${path}: not a 32-bit little-endian ARM ELF`);
  }
  const segments = [];
  const sizes = { flash: 0, staticRam: 0, ramTop: RAM.start };
  const [headers, stride, count] = [file.readUInt32LE(28), file.readUInt16LE(42), file.readUInt16LE(44)];
  for (let i = 0; i < count; i++) {
    const word = (n) => file.readUInt32LE(headers + i * stride + 4 * n);
    const [type, offset, vaddr, paddr, filesz, memsz] = [0, 1, 2, 3, 4, 5].map(word);
    if (type !== PT_LOAD || memsz === 0) continue;
    if (filesz > 0) {
      segments.push({ address: paddr, bytes: file.subarray(offset, offset + filesz) });
      if (inside(FLASH, paddr)) sizes.flash += filesz;
    }
    if (inside(RAM, vaddr)) {
      sizes.staticRam += memsz;
      sizes.ramTop = Math.max(sizes.ramTop, vaddr + memsz);
    }
  }
  return { path, segments, sizes, symbols: readSymbols(file) };
}

/** Name to value, from .symtab; empty for a stripped file. */
function readSymbols(file) {
  const SHT_SYMTAB = 2;
  const symbols = new Map();
  const [headers, stride, count] = [file.readUInt32LE(32), file.readUInt16LE(46), file.readUInt16LE(48)];
  const section = (i, n) => file.readUInt32LE(headers + i * stride + 4 * n);
  for (let i = 0; i < count; i++) {
    if (section(i, 1) !== SHT_SYMTAB) continue;
    const [offset, size, strings] = [section(i, 4), section(i, 5), section(section(i, 6), 4)];
    for (let at = offset; at < offset + size; at += 16) {
      const start = strings + file.readUInt32LE(at);
      symbols.set(file.toString('latin1', start, file.indexOf(0, start)), file.readUInt32LE(at + 4));
    }
  }
  return symbols;
}

function inside(region, address) {
  return address >= region.start && address < region.start + region.size;
}
