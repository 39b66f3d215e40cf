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

//go:embed assets/* templates/*.html
var files embed.FS

// versions has the assets by name, each with the beginning of its SHA-256. Only these are served.
var versions = sync.OnceValue(func() map[string]string {
	found := map[string]string{}
	for _, entry := range must(files.ReadDir("assets")) {
		sum := sha256.Sum256(must(files.ReadFile("assets/" + entry.Name())))
		found[entry.Name()] = hex.EncodeToString(sum[:6])
	}
	return found
})

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// assetPath returns the address of an asset with its version, so that browsers may cache it for ever.
func assetPath(name string) string { return "assets/" + name + "?" + versions()[name] }

// serveAsset serves an asset. Browsers may not cache it if they asked for another version, as a
// page from before an update does.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	version, ok := versions()[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.URL.RawQuery == version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeFileFS(w, r, files, "assets/"+name)
}

// templates has the pages by name. Each has a copy of the layout, because all define "content".
var templates = sync.OnceValue(func() map[string]*template.Template {
	layout := template.Must(template.New("layout").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	found := map[string]*template.Template{}
	for _, entry := range must(files.ReadDir("templates")) {
		name := entry.Name()[:len(entry.Name())-len(".html")]
		found[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "templates/"+entry.Name()))
	}
	return found
})

func execute(w io.Writer, name string, data any) error {
	return templates()[name].ExecuteTemplate(w, "page", data)
}

// functions are for templates. Templates escape the results, except that of moment, which is HTML.
// Templates have no style attributes, because the Content-Security-Policy forbids them; bars are
// SVGs.
var functions = template.FuncMap{
	"asset": assetPath, "num": func(n any) string { return display.Number(reflect.ValueOf(n).Int()) }, "perSecond": perSecond, "span": span,
	"clock": moment, "since": since, "short": short, "plural": display.Count, "key": keyName, "meter": meterName,
	"percent": func(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) },
	"act":     act, "to": to,
	"isFull": func(share float64) bool { return share >= 0.95 },
	"zone":   func(t time.Time) string { return t.Format("MST") },
	"iso":    func(t time.Time) string { return t.Format(time.RFC3339) },
}

// moment returns clock in an element that the script converts to the viewer's zone.
func moment(t, now time.Time) template.HTML {
	if t.IsZero() {
		return template.HTML(clock(t, now))
	}
	t = t.In(now.Location()).Round(time.Second)
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `">` + clock(t, now) + `</time>`)
}
