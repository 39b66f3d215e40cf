// Package throttletest judges what a limiter let through. It looks at a history
// of admissions and at the words of the limit, and at nothing of any limiter's:
// so it can judge one that it has never seen, or what a server has counted.
package throttletest
