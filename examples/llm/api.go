package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"sync"
	"time"
)

// What the API allows, in scaled time.
const (
	minute = 2 * time.Second
	day    = time.Minute

	requestsPerMinute = 200
	tokensPerMinute   = 15_000
	tokensPerDay      = 200_000
)

type question struct {
	Model     string    `json:"model"`
	Messages  []message `json:"messages"`
	MaxTokens int       `json:"max_tokens"`
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (q question) promptTokens() int {
	n := 0
	for _, m := range q.Messages {
		n += len(m.Content) / 4
	}
	return n
}

// answer is what came of it, and what it cost.
type answer struct {
	Choices []choice `json:"choices"`
	Usage   struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
	} `json:"usage"`
}

type choice struct {
	Message message `json:"message"`
}

// api answers chat completions as the well-known ones do. It counts the tokens
// that an answer takes by its own clock, and answers 429 where a quota is used up.
type api struct {
	mu       sync.Mutex
	requests bucket
	tokens   bucket
	today    int64
	daily    int            // tokens, today
	answered map[string]int // how often, by question
	refused  int
	used     int // tokens in all
	first    time.Time
	last     time.Time
}

func newAPI() *api {
	return &api{requests: bucket{quota: requestsPerMinute}, tokens: bucket{quota: tokensPerMinute}, answered: map[string]int{}}
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply := a.think(q)
	if !a.take(w.Header(), q.Messages[0].Content, reply.Usage.TotalTokens) {
		http.Error(w, `{"error":{"type":"rate_limit_exceeded"}}`, http.StatusTooManyRequests)
		return
	}
	time.Sleep(20*time.Millisecond + time.Duration(reply.Usage.CompletionTokens)*200*time.Microsecond)
	_ = json.NewEncoder(w).Encode(reply)
}

// think finds an answer: it is shorter than it might be, the same for the same question.
func (a *api) think(q question) (reply answer) {
	hash := fnv.New32()
	_, _ = hash.Write([]byte(q.Messages[0].Content))
	words := 20 + int(hash.Sum32()%200)
	reply.Choices = []choice{{message{"assistant", strings.Repeat("word ", words)}}}
	reply.Usage.PromptTokens, reply.Usage.CompletionTokens = q.promptTokens(), min(words, q.MaxTokens)
	reply.Usage.TotalTokens = reply.Usage.PromptTokens + reply.Usage.CompletionTokens
	return reply
}

// take charges a question, or refuses it, and says what is left.
func (a *api) take(header http.Header, question string, tokens int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if today := now.UnixNano() / int64(day); today != a.today {
		a.today, a.daily = today, 0
	}
	a.requests.refill(now)
	a.tokens.refill(now)
	ok := a.requests.left >= 1 && a.tokens.left >= float64(tokens) && a.daily+tokens <= tokensPerDay
	if ok {
		a.requests.left--
		a.tokens.left -= float64(tokens)
		a.daily += tokens
		a.used += tokens
		a.answered[question]++
		if a.last = now; a.first.IsZero() {
			a.first = now
		}
	} else {
		a.refused++
	}
	tell(header, "requests-minute", requestsPerMinute, int(a.requests.left), a.requests.reset())
	tell(header, "tokens-minute", tokensPerMinute, int(a.tokens.left), a.tokens.reset())
	tell(header, "tokens-day", tokensPerDay, tokensPerDay-a.daily, day-time.Duration(now.UnixNano())%day)
	return ok
}

// tell writes what many APIs do about a quota.
func tell(header http.Header, name string, limit, left int, reset time.Duration) {
	header.Set("X-Ratelimit-Limit-"+name, fmt.Sprint(limit))
	header.Set("X-Ratelimit-Remaining-"+name, fmt.Sprint(left))
	header.Set("X-Ratelimit-Reset-"+name, reset.String())
}

// bucket holds a minute's quota and fills within a minute.
type bucket struct {
	quota, left float64
	at          time.Time
}

// refill adds what has come since the last time; a new bucket is full.
func (b *bucket) refill(now time.Time) {
	b.left = min(b.quota, b.left+b.quota*float64(now.Sub(b.at))/float64(minute))
	b.at = now
}

// reset is how long it takes to fill.
func (b *bucket) reset() time.Duration {
	return time.Duration((b.quota - b.left) / b.quota * float64(minute))
}
