package redistest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Users are passwords of Redis users by name.
type Users map[string]string

var userLine = regexp.MustCompile(`(?m)^user (\S+) (?:on >(\S+)|off)(?: .*)?$`)

// admin is the user of [Server.Client] after [RunWithUsers], and its password.
const admin = "redistest"

// RunWithUsers is [Run] with the users in the aclfile lines of a document. It replaces {default} by
// the scope. [Server.Client] signs in as one more user, who may do everything.
func RunWithUsers(t TB, document, scope string, args ...string) (*Server, Users) {
	t.Helper()
	text, err := os.ReadFile(document)
	users, lines := Users{}, "user "+admin+" on >"+admin+" ~* &* +@all\n"
	for _, user := range userLine.FindAllStringSubmatch(string(text), -1) {
		if user[2] != "" {
			users[user[1]] = user[2]
		}
		lines += strings.ReplaceAll(user[0], "{default}", "{"+scope+"}") + "\n"
	}
	if err != nil || len(users) == 0 {
		t.Fatalf("%s has no line of an aclfile: %v", document, err)
	}
	s := &Server{dir: Folder(t), user: admin}
	file := filepath.Join(s.dir, "users.acl")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	s.args = append([]string{"--aclfile", file}, args...)
	return begin(t, s), users
}

// URLAs returns [Server.URL] for a user.
func (u Users) URLAs(name string, s *Server) string {
	return "redis://" + name + ":" + u[name] + "@" + s.Addr()
}

// Client returns a new client as a user, which the caller must close.
func (u Users) Client(name string, s *Server) *redis.Client {
	options := s.Options()
	options.Username, options.Password = name, u[name]
	return redis.NewClient(options)
}
