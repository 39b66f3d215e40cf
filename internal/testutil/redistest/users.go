package redistest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Users are users of a Redis with their passwords, by name.
type Users map[string]string

var userLine = regexp.MustCompile(`(?m)^user (\S+) (?:on >(\S+)|off)(?: .*)?$`)

// admin is the user of [Server.Client] on a server with users of its own.
const admin = "redistest"

// RunWithUsers is [Run] with the users that the document gives in the lines of an
// aclfile, but with any text, and * too, for the scope default. [Server.Client] signs in
// as one more user, who may do everything: what the document says of the user default
// holds here, too.
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
	s := &Server{dir: folder(t), user: admin, password: admin}
	file := filepath.Join(s.dir, "users.acl")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
	s.args = append([]string{"--aclfile", file}, args...)
	return begin(t, s), users
}

// URLAs is [Server.URL] for a user.
func (u Users) URLAs(name string, s *Server) string {
	return "redis://" + name + ":" + u[name] + "@" + s.Addr()
}

// Client connects to a server as a user. The caller must close the client.
func (u Users) Client(name string, s *Server) *redis.Client {
	options := s.Options()
	options.Username, options.Password = name, u[name]
	return redis.NewClient(options)
}
