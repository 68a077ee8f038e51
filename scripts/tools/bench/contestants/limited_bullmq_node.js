// BullMQ on Node with limits: its limiter, its global concurrency, and deduplication. Limits by key are not part of it.
'use strict';
const fs = require('fs');
const { Queue, Worker } = require('bullmq');
const IORedis = require('ioredis');

const RECORD = 32, WARM = 50, PART = 500;
const file = fs.openSync(process.env.BENCH_MARKS, 'a', 0o600);
const connect = () => new IORedis(process.env.BENCH_REDIS, { maxRetriesPerRequest: null });
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const LIMITS = { rated: { limiter: { max: 200, duration: 1000 } } };
const OPTIONS = { removeOnComplete: true };
const unique = { ...OPTIONS, deduplication: { id: 'one' } };

function mark(number) {
  const record = Buffer.alloc(RECORD);
  record.writeBigInt64LE(BigInt(number), 0);
  record.writeDoubleLE(now(), 16);
  record.writeBigInt64LE(BigInt(process.pid), 24);
  fs.writeSync(file, record);
}

const VERBS = {
  async fill(queue, kind, count) {
    if (kind === 'together') await queue.setGlobalConcurrency(100);
    for (let first = 0; first < count; first += PART) {
      const numbers = Array.from({ length: Math.min(PART, count - first) }, (_, n) => first + n);
      await queue.addBulk(numbers.map((number) => ({ name: 'mark', data: { number }, opts: OPTIONS })));
    }
    return {};
  },
  async one(queue, kind, count) {
    const opts = kind === 'unique' ? unique : OPTIONS;
    for (let n = 0; n < WARM; n++) await queue.add('mark', { number: -1 }, opts);
    const began = performance.now();
    for (let n = 0; n < count; n++) await queue.add('mark', { number: n }, opts);
    return { seconds: (performance.now() - began) / 1000, jobs: +count + WARM };
  },
};

async function work(kind) {
  new Worker('limited', async (job) => mark(job.data.number), { connection: connect(), concurrency: 100, ...LIMITS[kind] });
}

async function produce([verb, ...words]) {
  const connection = connect();
  const queue = new Queue('limited', { connection });
  console.log(JSON.stringify(await VERBS[verb](queue, ...words)));
  await queue.close();
  connection.disconnect();
}

const words = process.argv.slice(2);
(words[0] === 'worker' ? work(words[1]) : produce(words)).catch((error) => {
  console.error(error);
  process.exit(1);
});
