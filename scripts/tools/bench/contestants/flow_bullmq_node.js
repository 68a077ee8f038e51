// BullMQ on Node: flows of a parent with children, and nested flows of one child each. It does what flowing.py does for
// the others.
'use strict';
const fs = require('fs');
const { FlowProducer, Worker } = require('bullmq');
const IORedis = require('ioredis');

const RECORD = 32, HELD = 1000000, CALLED = 2000000, AFTER = 3000000, HOLD_S = 60, ENOUGH_S = 10, PATIENCE_S = 60;
const WARM_UP = -1;
const QUEUE = 'flow', DONE = { removeOnComplete: true };
const file = fs.openSync(process.env.BENCH_MARKS, 'a', 0o600);
const short = process.env.BENCH_SETTING === 'short' ? { lockDuration: 5000, stalledInterval: 5000 } : {};
const connect = () => new IORedis(process.env.BENCH_REDIS, { maxRetriesPerRequest: null });
const now = () => Number(process.hrtime.bigint()) / 1e9; // the monotonic clock, as Python's
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const marked = () => fs.fstatSync(file).size / RECORD;
const range = (count) => Array.from({ length: count }, (_, n) => n);

function mark(number, turn) {
  const record = Buffer.alloc(RECORD);
  record.writeBigInt64LE(BigInt(number), 0);
  record.writeDoubleLE(turn, 8);
  record.writeDoubleLE(now(), 16);
  record.writeBigInt64LE(BigInt(process.pid), 24);
  fs.writeSync(file, record);
}

function mustHold(number, turn) {
  if (number !== HELD) return false;
  const all = fs.readFileSync(process.env.BENCH_MARKS);
  for (let at = 0; at < all.length; at += RECORD) {
    if (all.readBigInt64LE(at) === BigInt(HELD)) return false;
  }
  mark(HELD, turn);
  return true;
}

const node = (name, data, children) => ({ name, data, queueName: QUEUE, opts: DONE, children });

const SHAPES = {
  batch: (numbers, turn) => node('after', { turn }, numbers.map((number) => node('child', { number, turn }))),
  chain: (numbers, turn) =>
    numbers.reduce((before, number) => node('child', { number, turn }, before ? [before] : undefined), null),
};

async function haveCome(count) {
  let seen = -1, since = now();
  while (marked() < count) {
    if (marked() > seen) [seen, since] = [marked(), now()];
    if (now() - since > PATIENCE_S) return false;
    await sleep(0.005);
  }
  return true;
}

const VERBS = {
  async fill(flows, kind, count) {
    await flows.add(SHAPES.batch(range(+count).map(() => WARM_UP), -1));
    return {};
  },
  async wait(flows, count) {
    await flows.add(SHAPES.batch(range(+count), 0));
    return {};
  },
  async hold(flows, count) {
    await flows.add(SHAPES.batch([...range(count - 1), HELD], 0));
    return {};
  },
  async turns(flows, shape, count, times) {
    const began = now();
    for (const turn of range(+times)) {
      if (turn && now() - began > ENOUGH_S) break;
      const untilMarked = marked() + 1 + Number(count) + (shape === 'batch');
      mark(CALLED, turn);
      await flows.add(SHAPES[shape](range(+count), turn));
      if (!(await haveCome(untilMarked))) return { error: `turn ${turn} of ${shape} makes no progress` };
      await sleep(0.1);
    }
    return {};
  },
};

const HANDLERS = {
  async child({ number, turn }) {
    if (mustHold(number, turn)) await sleep(HOLD_S);
    mark(number, turn);
  },
  async after({ turn }) {
    mark(turn < 0 ? WARM_UP : AFTER, turn);
  },
};

async function work() {
  new Worker(QUEUE, (job) => HANDLERS[job.name](job.data), { connection: connect(), concurrency: 100, ...short });
}

async function produce([verb, ...words]) {
  const connection = connect();
  const flows = new FlowProducer({ connection });
  console.log(JSON.stringify(await VERBS[verb](flows, ...words)));
  await flows.close();
  connection.disconnect();
}

const words = process.argv.slice(2);
(words[0] === 'worker' ? work() : produce(words)).catch((error) => {
  console.error(error);
  process.exit(1);
});
