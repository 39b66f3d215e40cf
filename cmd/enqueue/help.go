package main

const about = `Adds jobs to queues: one job given by flags, or many jobs from a file or standard input, one JSON object per line.

  enqueue --type http:request --payload '{"url":"https://example.com/"}'
  enqueue jobs.jsonl
  make-jobs | enqueue --in 1h -

The fields of a line are type, payload, id, queue, in, at, max_retry, retention, priority, timeout, deadline and unique. Each overrides the flag of the same name. Only type is required. Jobs of one queue keep the order of their lines.

The payload of http:request is an object with these fields; only url is required:

` + requestFields + `

The payload of crawl:fetch, which "enqueue crawl" writes, requires crawl and url:

` + crawlFields + `

The payload of exec:NAME, a command in the worker's config, is an object with the fields that the command's arguments use. exec:command takes the name from its field command.

${env:NAME} and ${file:/path} in headers, and in the path and query of url, are secrets of the worker that its config allows in http.secrets. They appear in no payload, result or log.

Lines with errors are reported by number, and the other jobs are added. A job whose ID exists in the queue, or that --unique excludes, is not added. The exit code is 2 if a line is bad, and 1 if Redis failed or a job exists already.`

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

const crawlFields = `  crawl         name of the crawl, which fetches a URL once
  url           https://example.com/path, without user and password
  depth         how many links further the crawl may go (0)
  allow         where to: "same-host", "same-site", hosts, "*.example.com"
                (["same-host"])
  start         when it was enqueued, in µs since 1970: URLs of one crawl have
                the same; if nothing waits of the crawl of that name, a later
                one begins it again (when it runs)
  sitemap       true if url is a sitemap
  nested        how many sitemaps list one another up to it, 0 or 1
  from          the page that led to url
  hops          how many redirects have led to url (0)
  robots        the origin whose robots.txt url is`
