// Package throttletest judges what a limiter let through. It looks at a history
// of admissions and at the words of the limit, and at nothing of any limiter's:
// so it can judge one that it has never seen, or what a server has counted.
//
// A test notes an [Admission] for each call that was allowed and ends with [Check].
// What it holds the history against is the guarantee of the limit's Kind, in every
// window and not only in those that begin with a call. That nothing was let through
// is no violation: whether a limiter is too strict is another test's to say.
package throttletest
