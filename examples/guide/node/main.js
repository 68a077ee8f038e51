// Produce, work, reclaim and watch on a queue that may be shared with schedq: the guide's programs in Node.js.
//
// node main.js produce '{"kind": "email"}'      node main.js work --jobs 1      node main.js --help

'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { parseArgs } = require('node:util');
const { createClient } = require('redis');
const { JobQueue } = require('./job-queue.js');

const WAIT_S = 1;
const HELP = `usage: node main.js [--redis URL] [--queue NAME] VERB [options]

A job queue written from the Redis guide, on keys shared with schedq.

  produce PAYLOAD           store a job (JSON) and print its id
      --delay-ms N          delay in milliseconds, by this machine's clock
      --count N             number of jobs, each with its own id
      --wake                make an idle schedq worker look at once
  work                      claim jobs and pretend to do them
      --move COMMAND        the command that claims: blmove (default) or brpoplpush
      --work-ms N           how long a job takes
      --fail TEXT           fail every job with this error
      --jobs N              exit after this many jobs
      --max-attempts N      default 3
  reclaim                   take back claims that are too old
      --visibility-ms N     age at which a claim is too old; default 5000
      --every-ms N          default 1000
  stats                     print depths and totals
  events                    print events of jobs until Ctrl-C
`;
const OPTIONS = ['redis', 'queue', 'count', 'delay-ms', 'move', 'work-ms', 'fail', 'jobs', 'max-attempts',
  'visibility-ms', 'every-ms'];

const stop = { hasCome: false };
const say = (facts) => console.log(JSON.stringify(facts));

/** Claim, pretend to work, report; print one line when a job starts and one when it ends. */
async function work(queue, given) {
  for (let left = Number(given.jobs ?? -1); left !== 0 && !stop.hasCome;) {
    const job = await queue.claim(WAIT_S);
    if (job === null) continue;
    left -= 1;
    say({ id: job.id, did: 'started', attempts: job.attempts, payload: job.payload });
    await sleep(Number(given['work-ms'] ?? 0));
    const isOurs = given.fail === undefined
      ? await queue.complete(job, { worker: process.pid })
      : await queue.fail(job, given.fail);
    const word = given.fail === undefined ? 'completed' : 'failed';
    say({ id: job.id, did: isOurs ? word : 'came too late' });
  }
}

/** Take back stuck jobs, repeatedly. */
async function reclaim(queue, given) {
  while (!stop.hasCome) {
    for (const id of await queue.reclaimStuck()) say({ id, did: 'reclaimed' });
    await sleep(Number(given['every-ms'] ?? 1000));
  }
}

function parsed() {
  const options = Object.fromEntries(OPTIONS.map((name) => [name, { type: 'string' }]));
  const switches = { wake: { type: 'boolean' }, help: { type: 'boolean', short: 'h' } };
  try {
    return parseArgs({ options: { ...options, ...switches }, allowPositionals: true });
  } catch (error) {
    return wrong(error.message);
  }
}

function wrong(message) {
  console.error(`${message}\n\n${HELP}`);
  process.exit(2);
}

async function act(queue, verb, payload, given) {
  if (verb === 'produce') {
    for (let left = Number(given.count ?? 1); left > 0; left -= 1) {
      console.log(await queue.enqueue(payload, Number(given['delay-ms'] ?? 0), given.wake));
    }
  } else if (verb === 'work') {
    await work(queue, given);
  } else if (verb === 'reclaim') {
    await reclaim(queue, given);
  } else if (verb === 'stats') {
    say(await queue.stats());
  } else {
    await queue.events(say);
    while (!stop.hasCome) await sleep(100);
  }
}

async function main() {
  const { values: given, positionals: [verb, text] } = parsed();
  if (given.help) {
    console.log(HELP);
    return;
  }
  if (!['produce', 'work', 'reclaim', 'stats', 'events'].includes(verb)) wrong(`no such verb: ${verb}`);
  let payload;
  try {
    if (verb === 'produce') payload = JSON.parse(text);
  } catch (error) {
    wrong(`PAYLOAD must be JSON: ${error.message}`);
  }
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { stop.hasCome = true; });

  const client = createClient({ url: given.redis ?? process.env.REDIS_URL ?? 'redis://localhost:6379/0' });
  client.on('error', (error) => console.error(`redis: ${error.message}`));
  await client.connect();
  const named = { move: given.move, visibilityMs: given['visibility-ms'], maxAttempts: given['max-attempts'] };
  const options = Object.fromEntries(Object.entries(named).filter(([, value]) => value !== undefined));
  try {
    await act(new JobQueue(client, given.queue ?? 'jobs', options), verb, payload, given);
  } finally {
    client.destroy();
  }
}

main().catch((error) => {
  console.error(`redis: ${error.message}`);
  process.exitCode = 1;
});
