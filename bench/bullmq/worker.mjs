// Runs a backlog on BullMQ for bench/bullmq.go. Its argument is the JSON object {port, jobs,
// concurrency, max, duration}. It adds the jobs one by one, as the bench does for other systems,
// and prints "added". It connects a worker, prints "ready", and waits for a line on standard input.
// Then it runs the jobs, and prints "done" and one JSON array: the Unix microsecond at which each
// job started, in order.
import { once } from 'node:events'
import { Queue, Worker } from 'bullmq'

const { port, jobs, concurrency, max, duration } = JSON.parse(process.argv[2])
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null }

function nowMicros() {
  return Math.round((performance.timeOrigin + performance.now()) * 1000)
}

const queue = new Queue('bench', { connection })
for (let job = 0; job < jobs; job++) await queue.add('job', { job }, { removeOnComplete: true })
console.log('added')
await queue.setGlobalRateLimit(max, duration)
const starts = []
const worker = new Worker('bench', async () => { starts.push(nowMicros()) }, {
  connection, concurrency, autorun: false,
})
worker.on('error', error => {
  console.error(error.message)
  process.exit(1)
})
await worker.waitUntilReady()
console.log('ready')
await once(process.stdin, 'data')

const all = new Promise(resolve => {
  worker.on('completed', () => { if (starts.length === jobs) resolve() })
})
worker.run()
await all
console.log('done')
await new Promise(resolve => process.stdout.write(JSON.stringify(starts) + '\n', resolve))
await worker.close()
await queue.close()
process.exit(0)
