// Package tasks holds the task types that are built in: the name of each, its
// payload, its handler and, but for commands, its constructor. HTTPRequest makes
// one HTTP call, CrawlFetch fetches a page of a crawl and goes on from there, and
// ExecHandler runs commands that its worker lists.
//
// They are plain asynq tasks with plain asynq handlers. Register adds all of
// them to a mux; Validate checks a payload before it is enqueued, by the same
// rules as the handler. Payloads are JSON objects and, but for those of commands,
// are read strictly: an unknown field, a field given twice or a value of the wrong
// type is an error that says what would be right. A null is a field left out.
//
// A handler's error says what should become of the job. One that wraps
// asynq.SkipRetry cannot get better by itself, and asynq archives the job at
// once; every other error is worth another attempt. Class sorts the errors for
// policies of retries.
//
// The handlers know nothing of limits, and work with a plain asynq server, too. Feedback
// is middleware that has the limits of a scheduler.Server learn from the answers to their
// calls, and from those to a program's own by CheckAnswer: so a 429 shuts its key for all
// workers. What puts a job back without a failure they are given, as in
// HTTPHandler.PutBackAs.
package tasks
