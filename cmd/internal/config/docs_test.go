package config_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// documents are the pages of the root and of docs.
func documents(t *testing.T) []string {
	t.Helper()
	root, _ := filepath.Glob("../../../*.md")
	docs, _ := filepath.Glob("../../../docs/*.md")
	return slices.Concat(root, docs)
}

// The documents name each field of a result, in the order of the struct.
func TestDocs_Results(t *testing.T) {
	text := proctest.ReadFile(t, "../../../docs/configuration.md")
	for typename, result := range map[string]any{tasks.TypeHTTPRequest: tasks.HTTPResult{}, tasks.TypeCrawlFetch: tasks.CrawlResult{}} {
		var fields []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(result)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, "`"+name+"`")
		}
		if line := "- `" + typename + "`: " + strings.Join(fields, ", ") + "\n"; !strings.Contains(text, line) {
			t.Errorf("docs/configuration.md lacks the line\n%s", line)
		}
	}
}

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")

// A worker accepts the configs that the documents show.
func TestDocs_YAML_Loads(t *testing.T) {
	blocks := 0
	for _, path := range documents(t) {
		for _, match := range yamlBlock.FindAllStringSubmatch(proctest.ReadFile(t, path), -1) {
			blocks++
			if _, err := config.Parse(path, []byte(match[1])); err != nil {
				t.Errorf("%s, in the YAML that begins with %.60q: %v", path, match[1], err)
			}
		}
	}
	if blocks < 3 {
		t.Errorf("%d blocks of YAML, want those of README.md at least", blocks)
	}
}

const limitsPage = "../../../docs/limits.md"

// TestDocs_Starts: of ten jobs that come two seconds before a minute ends, each row of the
// table says when they start under a limit of that kind.
func TestDocs_Starts(t *testing.T) {
	page := proctest.ReadFile(t, limitsPage)
	for kind, limit := range map[string]throttle.Limit{
		"fixed_window":   {Kind: throttle.FixedWindow, Rate: throttle.PerMinute(4)},
		"sliding_log":    {Kind: throttle.SlidingLog, Rate: throttle.PerMinute(4)},
		"sliding_window": {Kind: throttle.SlidingWindow, Rate: throttle.PerMinute(4)},
		"token_bucket":   {Kind: throttle.TokenBucket, Rate: throttle.PerMinute(4), Capacity: 4},
		"funnel":         {Kind: throttle.Funnel, Rate: throttle.PerMinute(4)},
		"concurrency":    {Kind: throttle.Concurrency, Capacity: 4, Lease: 30 * time.Second},
	} {
		row := "| `" + kind + "` | "
		limit.Name = "limit"
		synctest.Test(t, func(t *testing.T) { row += starts(t, limit) })
		if !strings.Contains(page, row+" |\n") {
			t.Errorf("%s does not have the row %s", limitsPage, row)
		}
	}
}

// starts says when ten jobs start that come at 0:58, each as soon as it may.
func starts(t *testing.T, limit throttle.Limit) string {
	t.Helper()
	limiter := throttle.NewLocal(throttle.Options{})
	if err := limiter.Define(t.Context(), limit); err != nil {
		t.Fatal(err)
	}
	midnight := time.Now().Truncate(time.Hour)
	time.Sleep(58 * time.Second)
	var times []time.Duration
	for len(times) < 10 {
		d, err := limiter.Allow(t.Context(), "limit", "")
		if err != nil {
			t.Fatal(err)
		}
		if d.OK() {
			times = append(times, time.Since(midnight))
		}
		time.Sleep(d.RetryAfter)
	}
	return inWords(times)
}

// inWords lists times, such as 0:58 ×4, 1:00.
func inWords(times []time.Duration) string {
	var words []string
	for len(times) > 0 {
		at, n := times[0], 1
		for n < len(times) && times[n] == at {
			n++
		}
		word := fmt.Sprintf("%d:%02d", at/time.Minute, at%time.Minute/time.Second)
		if n > 1 {
			word += fmt.Sprintf(" ×%d", n)
		}
		words, times = append(words, word), times[n:]
	}
	return strings.Join(words, ", ")
}

var (
	recipe       = regexp.MustCompile("(?m)^\\| (S[1-9]) \\| [^|]+ \\| `(.+)` \\| (\\d+) \\| ")
	throttleLine = regexp.MustCompile(`^headgate-worker throttle (\S+) (\d+) (\d+) (\d+)$`)
)

// TestRecipes: each of the nine systems has a recipe, and of 20 calls at once as many pass as it says.
func TestRecipes(t *testing.T) {
	recipes := recipe.FindAllStringSubmatch(proctest.ReadFile(t, limitsPage), -1)
	if len(recipes) != 9 {
		t.Errorf("%s has %d recipes, want 9", limitsPage, len(recipes))
	}
	for _, r := range recipes {
		synctest.Test(t, func(t *testing.T) {
			if got := passed(t, r[2]); strconv.Itoa(got) != r[3] {
				t.Errorf("%s: of 20 calls %d pass, the page says %s", r[1], got, r[3])
			}
		})
	}
}

// passed is how many of 20 calls at once pass the first of some limits, or the command throttle.
func passed(t *testing.T, recipe string) (count int) {
	t.Helper()
	limiter := throttle.NewLocal(throttle.Options{App: "headgate"})
	var call func() (throttle.Decision, error)
	if n := throttleLine.FindStringSubmatch(recipe); n != nil {
		call = func() (throttle.Decision, error) {
			return limiter.Throttle(t.Context(), n[1], whole(t, n[2]), whole(t, n[3]), time.Duration(whole(t, n[4]))*time.Second, 1)
		}
	} else {
		c, err := config.Parse("headgate.yaml", []byte("limits: {"+recipe+"}"))
		if err != nil {
			t.Fatal(err)
		}
		if err := limiter.Define(t.Context(), c.Limits...); err != nil {
			t.Fatal(err)
		}
		call = func() (throttle.Decision, error) { return limiter.Allow(t.Context(), c.Limits[0].Name, "key") }
	}
	for range 20 {
		d, err := call()
		if err != nil {
			t.Fatal(err)
		}
		if d.OK() {
			count++
		}
	}
	return count
}

func whole(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
