const PRIMES = firstPrimes(64);
/** The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4). */
const ROUNDS = Int32Array.from(PRIMES, (prime) => fraction(Math.cbrt(prime)));
/** The same of the square roots of the first 8. */
const START = Int32Array.from(PRIMES.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
/** Scratch: nothing waits between its first use and its last. */
const WORDS = new Int32Array(64);
const STATE = new Int32Array(8);

/**
 * SHA-256 in lowercase hex. Here because WebCrypto's is asynchronous and Node's is not everywhere; meant for short
 * texts such as keys.
 */
export function sha256Hex(bytes: Uint8Array): string {
  STATE.set(START);
  const blocks = padded(bytes);
  for (let at = 0; at < blocks.byteLength; at += 64) {
    for (let index = 0; index < 16; index++) WORDS[index] = blocks.getInt32(at + index * 4);
    compress(STATE, WORDS);
  }
  let hex = "";
  for (let index = 0; index < 8; index++) hex += (STATE[index]! >>> 0).toString(16).padStart(8, "0");
  return hex;
}

/** The message, a 1 bit, zeros, and the length in bits, in whole blocks of 64 bytes. */
function padded(bytes: Uint8Array): DataView {
  const view = new DataView(new ArrayBuffer(Math.ceil((bytes.length + 9) / 64) * 64));
  new Uint8Array(view.buffer).set(bytes);
  view.setUint8(bytes.length, 0x80);
  view.setBigUint64(view.byteLength - 8, BigInt(bytes.length) * 8n);
  return view;
}

function compress(state: Int32Array, words: Int32Array): void {
  for (let at = 16; at < 64; at++) {
    const near = words[at - 2]!;
    const far = words[at - 15]!;
    const sigma0 = turn(far, 7) ^ turn(far, 18) ^ (far >>> 3);
    const sigma1 = turn(near, 17) ^ turn(near, 19) ^ (near >>> 10);
    words[at] = (words[at - 16]! + sigma0 + words[at - 7]! + sigma1) | 0;
  }
  let a = state[0]!;
  let b = state[1]!;
  let c = state[2]!;
  let d = state[3]!;
  let e = state[4]!;
  let f = state[5]!;
  let g = state[6]!;
  let h = state[7]!;
  for (let at = 0; at < 64; at++) {
    const sum1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
    const choice = (e & f) ^ (~e & g);
    const first = (h + sum1 + choice + ROUNDS[at]! + words[at]!) | 0;
    const sum0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
    const majority = (a & b) ^ (a & c) ^ (b & c);
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + sum0 + majority) | 0;
  }
  state[0] = (state[0]! + a) | 0;
  state[1] = (state[1]! + b) | 0;
  state[2] = (state[2]! + c) | 0;
  state[3] = (state[3]! + d) | 0;
  state[4] = (state[4]! + e) | 0;
  state[5] = (state[5]! + f) | 0;
  state[6] = (state[6]! + g) | 0;
  state[7] = (state[7]! + h) | 0;
}

function turn(word: number, by: number): number {
  return (word >>> by) | (word << (32 - by));
}

function fraction(root: number): number {
  return Math.floor((root % 1) * 2 ** 32) | 0;
}

function firstPrimes(count: number): number[] {
  const primes: number[] = [];
  for (let candidate = 2; primes.length < count; candidate++) {
    if (primes.every((prime) => candidate % prime !== 0)) primes.push(candidate);
  }
  return primes;
}
