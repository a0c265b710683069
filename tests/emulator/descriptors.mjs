// The parts of a USB configuration descriptor that a CDC ACM host needs (USB 2.0 §9.6).

/**
 * { interface, protocol, in, out }: the number of the communication interface and its bInterfaceProtocol (1 would promise AT
 * commands), and the numbers of the data interface's bulk endpoints.
 */
export function parseDescriptors(bytes) {
  const [INTERFACE, ENDPOINT, CDC, CDC_DATA, BULK] = [4, 5, 2, 10, 2];
  const found = {};
  let data = false;
  for (let at = 0; at + 2 <= bytes.length && bytes[at] >= 2; at += bytes[at]) {
    const field = (n) => bytes[at + n];
    if (field(1) === INTERFACE) {
      data = field(5) === CDC_DATA;
      if (field(5) === CDC && found.interface === undefined) Object.assign(found, { interface: field(2), protocol: field(7) });
    } else if (data && field(1) === ENDPOINT && (field(3) & 3) === BULK) {
      if (field(2) & 0x80) found.in ??= field(2) & 15;
      else found.out ??= field(2) & 15;
    }
  }
  if ([found.interface, found.in, found.out].includes(undefined)) throw new Error('the device has no CDC ACM port');
  return found;
}
