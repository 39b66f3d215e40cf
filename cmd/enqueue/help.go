package main

const about = `Adds jobs to queues: one job given by flags, or many jobs from a file or standard input, one JSON object per line.

  enqueue --type http:request --payload '{"url":"https://example.com/"}'
  enqueue jobs.jsonl
  make-jobs | enqueue --in 1h -

The fields of a line are type, payload, id, queue, in, at, max_retry, retention, priority, timeout, deadline and unique. Each overrides the flag of the same name. Only type is required. Jobs of one queue keep the order of their lines.

The payload of http:request is an object with these fields; only url is required. A value in parentheses is the default.

` + requestFields + `

The command "enqueue crawl" adds jobs of type crawl:fetch. Their payload requires crawl and url. A value in parentheses is the default.

` + crawlFields + `

The payload of exec:NAME, a command in the worker's config, is an object with the fields that the command's arguments use.

${env:NAME} and ${file:/path} are secrets of the worker. The worker inserts them into headers, and into the path and query of url, if its config allows them in http.secrets. They appear in no payload, result or log.

Lines with errors are reported by number, and the other jobs are added. A job whose ID exists in the queue, or that --unique excludes, is not added. The exit code is 2 if a line is bad, and 1 if Redis failed or a job exists already.`

const requestFields = `  url           https://example.com/path, without user and password
  method        HTTP method, such as POST (GET)
  headers       headers to send, such as {"Accept": "text/html"}
  body          text to send
  timeout       longest duration of the call, such as "10s" ("30s")
  expect        statuses that mean success, such as [200, 404] (any 2xx)
  redirects     true runs the job again after a redirect, with the next URL
                and its permits (false: a redirect is like any other status)
  hops          number of redirects that led to url (0)
  keep_headers  response headers to keep in the result, such as ["ETag"]
  save          file for the body, instead of the result: a path below
                http.save_dir of the worker's config, such as pages/home.html;
                pages/ names the file by the SHA-256 of the body
  max_body      number of bytes to keep of the body (65536 if it is not saved)`

const crawlFields = `  crawl         name of the crawl
  url           https://example.com/path, without user and password
  depth         how many links away from url the crawl goes (0: only url)
  allow         allowed hosts, such as "same-site", "example.com" or
                "*.example.com" (["same-host"])
  start         time at which the crawl was enqueued, in µs since 1970: a later
                time starts a finished crawl again (the time at which this
                job first runs)
  sitemap       true if url is a sitemap (false)
  from          URL of the page that links to url
  hops          number of redirects that led to url (0)`
