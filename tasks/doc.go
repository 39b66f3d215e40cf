// Package tasks holds the task types that are built in: for each the name of the
// type, its payload, its handler and, where it is enqueued by programs, its
// constructor. HTTPRequest makes one HTTP call, CrawlFetch fetches a page of a crawl
// and goes on from there, and ExecHandler runs commands that its worker lists.
//
// They are plain asynq tasks with plain asynq handlers. Register adds all of
// them to a mux; Validate checks a payload before it is enqueued, by the same
// rules as the handler. Payloads are JSON objects and are read strictly: an
// unknown field, a field given twice or a value of the wrong type is an error
// that says what would be right. A null is a field left out.
//
// A handler's error says what should become of the job. One that wraps
// asynq.SkipRetry cannot get better by itself, and asynq archives the job at
// once; every other error is worth another attempt. Class sorts the errors of
// HTTP calls for policies of retries.
package tasks
