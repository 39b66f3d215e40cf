package listen

import (
	"bytes"
	"net/http"
)

// InMemory has a handler make its answer in memory, and is done with it before the first
// byte goes out. So a client that reads slowly, or not at all, holds nothing of what
// the handler holds, such as a place among the scrapes.
func InMemory(h http.Handler) http.Handler { return whole{h} }

type whole struct{ http.Handler }

// ServeHTTP implements http.Handler.
func (h whole) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	made := &inMemory{header: w.Header(), code: http.StatusOK}
	h.Handler.ServeHTTP(made, r)
	w.WriteHeader(made.code)
	_, _ = w.Write(made.body.Bytes()) // who has left needs no answer
}

type inMemory struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *inMemory) Header() http.Header         { return a.header }
func (a *inMemory) WriteHeader(code int)        { a.code = code }
func (a *inMemory) Write(p []byte) (int, error) { return a.body.Write(p) }
