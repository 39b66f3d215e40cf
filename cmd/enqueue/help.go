package main

const about = `Adds jobs to queues: one job given by flags, or many jobs from a file or standard input, one JSON object per line.

  enqueue --type http:request --payload '{"url":"https://example.com/"}'
  enqueue jobs.jsonl
  make-jobs | enqueue --in 1h -
  enqueue calls.csv --type http:request --payload '{"url": ${row.url}}' --id '${row.nr}'

The fields of a line are type, payload, id, queue, in, at, max_retry, retention, priority, timeout, deadline, unique and batch. Each overrides the flag of the same name. Only type is required. Jobs of one queue keep the order of their lines.

Each line of a CSV file (.csv, or --csv) after the first becomes a job. ${row.NAME} in --payload and --id is the text of the column NAME, and row["a b"] that of a column "a b", written row[\"a b\"] within a text of JSON. A reference to a secret needs a second $, as in $${env:NAME}. An expression without text around it becomes its value, in quotes or not, so ${int(row.n)} is a number. Lines without any value are left out. A job keeps its row, so a second copy of the values is in Redis, and "worker results --csv" has the columns beside the answers.

The payload of http:request is an object with these fields; only url is required. A value in parentheses is the default.

` + requestFields + `

The command "enqueue crawl" adds jobs of type crawl:fetch. Their payload requires crawl and url. A value in parentheses is the default.

` + crawlFields + `

The payload of exec:NAME, a command in the worker's config, is an object with the fields that the command's arguments use.

Write ${env:NAME} or ${file:/path} in headers, or in the path or query of url, for a secret of the worker. When the worker runs the job, it inserts the secret if http.secrets of its config allows it. The secret itself appears in no payload, result or log.

Lines with errors are reported by number, and the other jobs are added. A job whose ID exists in the queue, or that --unique excludes, is rejected. The exit code is 1 if Redis failed, else 2 if a line is bad, else 1 if a job was rejected, else 0.`

const requestFields = `  url           https://example.com/path, without user and password
  method        HTTP method, such as POST (GET)
  headers       headers to send, such as {"Accept": "text/html"}
  body          text to send
  timeout       longest duration of the call, such as "10s" ("30s")
  expect        statuses that mean success, such as [200, 404] (any 2xx)
  redirects     true runs the job again after a redirect, when the next URL's
                limits allow it (false: a redirect is like any other status)
  hops          number of redirects that led to url (0)
  keep_headers  response headers to keep in the result, such as ["ETag"]
  save          file for the body of the response, which is then not in the
                result: a path below http.save_dir of the worker's config, such
                as pages/home.html; a path that ends with / is a folder, and
                the file's name in it is the SHA-256 of the body
  max_body      longest body of the response in bytes; a longer body is cut, and
                with save it fails the job (65536; with save: http.max_save)`

const crawlFields = `  crawl         name of the crawl
  url           https://example.com/path, without user and password
  depth         how many links away from url the crawl goes (0: only url)
  allow         allowed hosts, such as "same-site", "example.com" or
                "*.example.com" (["same-host"])
  start         time at which you enqueue the crawl, in µs since 1970; if it is
                later than the start of an ended crawl of this name, the crawl
                starts again (the time at which this job first runs)
  sitemap       true if url is a sitemap (false)
  from          URL of the page that links to url
  hops          number of redirects and sitemap indexes that led to url (0)`
