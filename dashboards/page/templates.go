package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/display"
)

// files are all that the page serves or makes pages of. They are in the program: it
// reads nothing from a disk, and nothing from another host.
//
//go:embed assets/* templates/*.html
var files embed.FS

// versions are the assets by name, each with the beginning of its SHA-256 in hex: under its
// version it never changes. They are from a single folder: there is no path to climb out
// of. Only what is in here is ever served.
var versions = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	for _, entry := range must(files.ReadDir("assets")) {
		// 48 bits: two versions of one file meet once in 10^14 updates.
		sum := sha256.Sum256(must(files.ReadFile("assets/" + entry.Name())))
		found[entry.Name()] = hex.EncodeToString(sum[:6])
	}
	return found
})

// must is for what is embedded.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// assetPath is where a page finds an asset, with its version: a browser may keep it
// for ever, and asks for another address when it has changed.
func assetPath(name string) string { return "assets/" + name + "?" + versions()[name] }

// serveAsset answers with an asset. Under another version than its own, as from a page
// of before an update, it is served all the same, but not to be kept: else a new file
// would be kept under an old address.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	version, ok := versions()[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	// It stands over the no-store that ServeHTTP has set before.
	if r.URL.RawQuery == version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeFileFS(w, r, files, "assets/"+name)
}

// templates are the pages by name, each with the layout around it. They are embedded,
// so one that is wrong panics at the first page that is made: the tests make all.
// Each has a copy of the layout, since all of them define the same "content".
var templates = sync.OnceValue(func() map[string]*template.Template {
	layout := template.Must(template.New("layout").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	found := map[string]*template.Template{}
	// layout and parts get an entry, too, which nobody asks for by name.
	for _, entry := range must(files.ReadDir("templates")) {
		name := entry.Name()[:len(entry.Name())-len(".html")]
		found[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "templates/"+entry.Name()))
	}
	return found
})

// execute writes a page.
func execute(w io.Writer, name string, data any) error {
	return templates()[name].ExecuteTemplate(w, "page", data)
}

// functions are what templates call. What they return is text, which html/template
// escapes where it stands; only moment returns HTML, of digits and letters of its own. Nor do templates write style attributes,
// which the policy refuses: what has a size, such as a bar, is an SVG.
var functions = template.FuncMap{
	"asset": assetPath, "num": func(n any) string { return display.Number(reflect.ValueOf(n).Int()) }, "perSecond": perSecond, "span": span,
	"clock": moment, "since": since, "short": short, "plural": display.Count, "key": keyName, "meter": meterName,
	"percent": func(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) },
	"act":     act, "to": to,
	"latency": latency, "isFull": func(share float64) bool { return share >= 0.95 },
	"zone": func(t time.Time) string { return t.Format("MST") },
	"iso":  func(t time.Time) string { return t.Format(time.RFC3339) },
}

// moment is clock as an element that the script turns into the viewer's zone.
func moment(t, now time.Time) template.HTML {
	if t.IsZero() {
		return template.HTML(clock(t, now))
	}
	t = t.In(now.Location()).Round(time.Second)
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `">` + clock(t, now) + `</time>`)
}
