// BullMQ on Node: 100 jobs at a time, removed when done. Its producer does what producing.py does for the others.
'use strict';
const fs = require('fs');
const { Queue, Worker } = require('bullmq');
const IORedis = require('ioredis');

const RECORD = 32, NAP_S = 60, WARM = 50, PART = 500;
const DONE = { removeOnComplete: true };
const file = fs.openSync(process.env.BENCH_MARKS, 'a', 0o600);
const short = process.env.BENCH_SETTING === 'short' ? { lockDuration: 5000, stalledInterval: 5000 } : {};
const connect = () => new IORedis(process.env.BENCH_REDIS, { maxRetriesPerRequest: null });
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const marked = () => fs.fstatSync(file).size / RECORD;

function mark(number, reference) {
  const record = Buffer.alloc(RECORD);
  record.writeBigInt64LE(BigInt(number), 0);
  record.writeDoubleLE(reference, 8);
  record.writeDoubleLE(now(), 16);
  record.writeBigInt64LE(BigInt(process.pid), 24);
  fs.writeSync(file, record);
}

// Numbers between 0 and 1, the same for the same seed (mulberry32).
function draws(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const delay = (due) => ({ ...DONE, delay: Math.max(0, Math.ceil((due - now()) * 1000)) });
const call = (number) => ({ name: 'mark', data: { number, reference: 0 }, opts: DONE });
const range = (first, last) => Array.from({ length: Math.max(0, last - first) }, (_, n) => first + n);

async function parts(queue, count) {
  for (let first = 0; first < count; first += PART) {
    await queue.addBulk(range(first, Math.min(first + PART, count)).map(call));
  }
}

const VERBS = {
  async one(queue, kind, count) {
    for (let n = 0; n < WARM; n++) await queue.add('mark', { number: -1, reference: 0 }, DONE);
    const began = performance.now();
    for (let n = 0; n < count; n++) await queue.add('mark', { number: n, reference: 0 }, DONE);
    return { seconds: (performance.now() - began) / 1000, jobs: +count + WARM };
  },
  async many(queue, kind, count) {
    await queue.addBulk(range(0, WARM).map(() => call(-1)));
    const began = performance.now();
    await parts(queue, +count);
    return { seconds: (performance.now() - began) / 1000, jobs: +count + WARM };
  },
  async fill(queue, kind, count) {
    await parts(queue, +count);
    return {};
  },
  async pace(queue, kind, count, low, high, seed) {
    const draw = draws(+seed);
    for (const number of [...Array(20).fill(-1), ...range(0, +count)]) {
      const before = marked();
      await queue.add('mark', { number, reference: now() }, DONE);
      await sleep(number < 0 ? 0.005 : +low + (high - low) * draw());
      const until = now() + 60;
      while (marked() <= before) {
        if (now() > until) return { error: `job ${number} has not started within 60 s` };
        await sleep(0.001);
      }
    }
    return {};
  },
  async spread(queue, kind, count, seconds, lead, seed) {
    const draw = draws(+seed);
    const first = now() + +lead;
    const instants = range(0, +count).map((number) => [number, first + (number * seconds) / count, draw()]);
    instants.sort((a, b) => a[2] - b[2]);
    for (const [number, due] of instants) await queue.add('mark', { number, reference: due }, delay(due));
    return { was_too_slow: now() > first };
  },
  async letters(queue, count, seconds) {
    const due = now() + +seconds;
    for (let n = 0; n < count; n++) await queue.add('send', { to: 'user@example.com', n }, delay(due));
    return {};
  },
  async nap(queue) {
    await queue.add('nap', {}, DONE);
    return {};
  },
};

async function work() {
  const handle = async (job) => {
    if (job.name === 'nap') {
      mark(0, now());
      await sleep(NAP_S);
    } else {
      mark(job.data.number, job.data.reference);
    }
  };
  new Worker('bench', handle, { connection: connect(), concurrency: 100, ...short });
}

async function produce([verb, ...words]) {
  const connection = connect();
  const queue = new Queue('bench', { connection });
  console.log(JSON.stringify(await VERBS[verb](queue, ...words)));
  await queue.close();
  connection.disconnect();
}

const words = process.argv.slice(2);
(words[0] === 'worker' ? work() : produce(words)).catch((error) => {
  console.error(error);
  process.exit(1);
});
