package expression

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// maxKey bounds what a payload can make Redis store as a name, in bytes.
const maxKey = 200

// Key says under which key a job counts: host(payload.url). The zero Key gives
// the empty key: one meter for all jobs.
type Key struct{ *formula }

// ParseKey compiles a key expression.
func ParseKey(text string) (Key, error) {
	f, err := compile("key expression", text, jobEnv{})
	return Key{f}, err
}

// Of is the job's key. Text, numbers and booleans can be keys, of 1 to 200
// bytes and without control characters.
func (k Key) Of(job *Job) (string, error) {
	if k.formula == nil {
		return "", nil
	}
	return answer(k.formula, job.sees, func(value any) (string, error) {
		key, err := scalar(value)
		if err == nil {
			err = checkKey(key)
		}
		return key, err
	})
}

// ByHost reports whether the host that a job calls determines its key, as in
// host(payload.url): so what that host says of the key concerns no other host.
func (k Key) ByHost() bool { return k.formula != nil && k.byHost }

// UnmarshalText is ParseKey, for config files.
func (k *Key) UnmarshalText(text []byte) (err error) {
	*k, err = ParseKey(string(text))
	return err
}

func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("the key is empty")
	case len(key) > maxKey:
		return fmt.Errorf("the key %q… has %d bytes: want at most %d", strings.ToValidUTF8(key[:40], ""), len(key), maxKey)
	case strings.ContainsFunc(key, unicode.IsControl):
		return fmt.Errorf("the key %q has a control character in it", key)
	}
	return nil
}

// exact is where float64 stops telling one whole number from the next.
const exact = 1 << 53

// scalar writes text, numbers (without exponent) and booleans as text.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case nil:
		return "", errors.New("there is no such field in it (or it is null)")
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		if math.IsNaN(v) || math.Abs(v) >= exact {
			return "", fmt.Errorf("the number %v is not exact: write it as text in the payload", v)
		}
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	return "", fmt.Errorf("it gives %s: want text, a number or true/false", describe(value))
}

// describe names the type of a value in the words of JSON.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case string:
		return "text"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	}
	return fmt.Sprintf("a %T", value)
}
