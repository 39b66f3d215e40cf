package main

const about = `Adds jobs to their queues: one that the flags describe, or many, one JSON object a line, from a file or from standard input.

  enqueue --type http:request --payload '{"url":"https://example.com/"}'
  enqueue jobs.jsonl
  make-jobs | enqueue --in 1h -

The fields of a line are type, payload, id, queue, in, at, max_retry, retention, priority, timeout, deadline and unique; each means what the flag of that name does, and wins over it. Only type is required. Jobs of one queue keep the order of their lines.

The payload of http:request is an object of these fields, of which only url is required:

` + requestFields + `

In the path and the query of url and in headers, ${env:NAME} and ${file:/path} stand for secrets of the worker, as far as http.secrets in its config lists them. They are in no payload, result or log.

A line with an error is reported with its number, and the others are added. The exit code is 2 if any line was bad, and 1 if Redis failed.`

// requestFields are those of tasks.HTTPRequest.
const requestFields = `  url           https://example.com/path, without user and password
  method        such as POST (GET)
  headers       {"Accept": "text/html"}
  body          text
  timeout       of the call, such as "10s" (30s)
  expect        the statuses that mean success, [200, 404] (any 2xx)
  redirects     "off": an answer as any other; "same-host": up to 5 at once,
                under one permit; "requeue": the job goes on at the next URL,
                under its permits (off)
  hops          how many redirects have led to url (0)
  keep_headers  the answer's headers to keep in the result, ["ETag"]
  save          where to put the body instead of into the result, below
                http.save_dir of the worker's config: pages/home.html, or
                pages/ for a file named by the body's SHA-256
  max_body      how many bytes of the body are wanted (64 KiB in the result)
  on_max_body   what a longer one is in the result: "truncate" or "fail"`
