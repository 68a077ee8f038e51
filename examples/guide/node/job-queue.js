// A job queue written from the guide in the Redis documentation, with node-redis and nothing else.
//
// It has no leases, no promotion of delayed jobs and no wake marker: it does what any program written from the guide
// does. It shares its queues with schedq, because both use the same keys and fields.

'use strict';

const { randomBytes } = require('node:crypto');
const { readFileSync } = require('node:fs');
const { join } = require('node:path');

const script = (name) => readFileSync(join(__dirname, '..', 'lua', `${name}.lua`), 'utf8');
const COMPLETE = script('complete');
const FAIL = script('fail');
const RECLAIM = script('reclaim');

/**
 * One queue, named as schedq names it.
 *
 * A claim is `{id, payload, attempts, token}`; the token proves ownership. The payload is the text as stored. The caller
 * parses it, where an error can still fail the job.
 */
class JobQueue {
  /**
   * @param client a connected node-redis client; a waiting claim blocks it, so other callers need their own
   * @param {string} name of the queue
   * @param {object} options
   *   move: `blmove`, or `brpoplpush` for older servers and clients;
   *   visibilityMs: age of a claim at which `reclaimStuck` takes it back;
   *   maxAttempts: claims that a job gets;
   *   keepS: seconds for which the record of a finished job is kept;
   *   history: number of finished jobs kept in the lists
   */
  constructor(client, name, options = {}) {
    this.client = client;
    this.prefix = `queue:${name}:`;
    this.options = { move: 'blmove', visibilityMs: 5000, maxAttempts: 3, keepS: 300, history: 50, ...options };
  }

  key(name) {
    return this.prefix + name;
  }

  /**
   * Store a job and return its id. A delayed job waits until a schedq worker or promoter moves it to `pending`.
   * `wake` makes an idle schedq worker look at once; otherwise it looks within a second.
   */
  async enqueue(payload, delayMs = 0, wake = false) {
    const id = randomBytes(8).toString('hex');
    const now = Date.now();
    const request = this.client.multi().hSet(this.key(`job:${id}`), {
      id,
      payload: JSON.stringify(payload),
      status: delayMs ? 'delayed' : 'pending',
      attempts: 0,
      enqueued_at_ms: now,
      claim_token: '',
    });
    if (delayMs) request.zAdd(this.key('delayed'), { value: id, score: now + delayMs });
    else request.lPush(this.key('pending'), id);
    request.hIncrBy(this.key('stats'), 'enqueued_total', 1);
    if (wake) request.zAdd(this.key('wake'), { value: '1', score: 0 });
    await request.exec();
    return id;
  }

  /**
   * The next job; waits at most `waitS` seconds for one; null if there was none.
   *
   * Between the move and the write of the claim the job has no visible owner. If this process dies there, only a
   * reclaimer notices.
   */
  async claim(waitS) {
    const pending = this.key('pending');
    const processing = this.key('processing');
    const id = this.options.move === 'blmove'
      ? await this.client.blMove(pending, processing, 'RIGHT', 'LEFT', waitS)
      : await this.client.brPopLPush(pending, processing, waitS);
    if (id === null) return null;
    const key = this.key(`job:${id}`);
    const token = randomBytes(8).toString('hex');
    const [, attempts, fields] = await this.client.multi()
      .hSet(key, { status: 'processing', claimed_at_ms: Date.now(), claim_token: token })
      .hIncrBy(key, 'attempts', 1)
      .hGetAll(key)
      .exec();
    return { id, payload: fields.payload ?? '', attempts: Number(attempts), token };
  }

  /** Report success; false if the job now belongs to another worker. */
  async complete(job, result) {
    const { keepS, history } = this.options;
    const isOurs = await this.run(COMPLETE, ['processing', 'completed', `job:${job.id}`],
      [job.id, job.token, Date.now(), JSON.stringify(result), keepS, history]);
    if (!isOurs) return false;
    await this.tell(job, 'completed');
    await this.client.hIncrBy(this.key('stats'), 'completed_total', 1);
    return true;
  }

  /** Report failure: retried at once if attempts are left. False if the job now belongs to another worker. */
  async fail(job, error) {
    const { keepS, history, maxAttempts } = this.options;
    const isLast = job.attempts >= maxAttempts;
    const isOurs = await this.run(FAIL, ['processing', 'pending', 'failed', `job:${job.id}`],
      [job.id, job.token, Date.now(), error, keepS, history, isLast ? 0 : 1]);
    if (!isOurs) return false;
    await this.tell(job, isLast ? 'failed' : 'retry');
    if (isLast) await this.client.hIncrBy(this.key('stats'), 'failed_total', 1);
    return true;
  }

  /** Take back claims that are too old and return their ids. Some process has to call this periodically. */
  async reclaimStuck() {
    const found = await this.run(RECLAIM, ['processing', 'pending'],
      [this.key('job:'), Date.now(), this.options.visibilityMs]);
    if (found.length > 0) await this.client.hIncrBy(this.key('stats'), 'reclaimed_total', found.length);
    return found;
  }

  /** Number of jobs in each state, and the totals that all programs on this queue share. */
  async stats() {
    const places = ['pending', 'processing', 'completed', 'failed'];
    const request = this.client.multi();
    for (const place of places) request.lLen(this.key(place));
    const replies = await request.hGetAll(this.key('stats')).exec();
    const totals = replies.pop();
    const counted = ['enqueued', 'completed', 'failed', 'reclaimed'].map((word) => `${word}_total`);
    return {
      ...Object.fromEntries(counted.map((name) => [name, Number(totals[name] ?? 0)])),
      ...Object.fromEntries(places.map((place, i) => [`${place}_depth`, Number(replies[i])])),
    };
  }

  /** Call `hear` with the events of jobs from now on, including schedq's: `id`, `status` and, from schedq, more. */
  async events(hear) {
    await this.client.subscribe(this.key('events'), (message) => hear(JSON.parse(message)));
  }

  tell(job, status) {
    return this.client.publish(this.key('events'), JSON.stringify({ id: job.id, status }));
  }

  run(text, keys, values) {
    return this.client.eval(text, { keys: keys.map((name) => this.key(name)), arguments: values.map(String) });
  }
}

module.exports = { JobQueue };
