package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
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

// serveAsset serves an asset. Browsers ask each time whether it has changed.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	data, err := files.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", fmt.Sprintf("\"%x\"", sha256.Sum256(data)))
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}

// templates has the pages by name. Each page has a copy of the layout, because every page defines
// the template "content".
var templates = sync.OnceValue(func() map[string]*template.Template {
	layout := template.Must(template.New("layout").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	found := map[string]*template.Template{}
	for _, name := range []string{"limits", "waiting", "job", "jobs", "changes", "do", "message"} {
		found[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "templates/"+name+".html"))
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
	"num": func(n any) string { return display.Number(reflect.ValueOf(n).Int()) }, "perSecond": perSecond, "span": span,
	"clock": moment, "since": since, "short": short, "plural": display.Count, "key": keyName, "meter": meterName, "change": changeText, "by": by,
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
