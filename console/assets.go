package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"strconv"
)

//go:embed assets templates
var files embed.FS

// addAssets adds the routes of the style and the script. It returns a text that changes with them.
func addAssets(routes map[string]http.HandlerFunc) (version string) {
	hash := sha256.New()
	for _, a := range []struct{ name, kind string }{{"console.css", "text/css; charset=utf-8"}, {"console.js", "text/javascript; charset=utf-8"}} {
		data := read("assets/" + a.name)
		sum := sha256.Sum256(data)
		_, _ = hash.Write(sum[:]) // it does not fail
		routes["assets/"+a.name] = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", a.kind)
			w.Header().Set("Cache-Control", "max-age=31536000, immutable") // its URL has the version
			write(w, r, http.StatusOK, data)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

func read(name string) []byte {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the file is part of the program
	}
	return data
}

// parsePages returns the templates of the pages by their names.
func parsePages() map[string]*template.Template {
	all := map[string]*template.Template{}
	base := template.Must(template.New("base.html").Funcs(words).ParseFS(files, "templates/base.html", "templates/parts.html", "templates/group-parts.html", "templates/buttons.html"))
	for _, name := range []string{"overview", "group", "topic", "event", "letters", "schedule", "lifecycle", "processes", "failure", "confirm", "edit", "job", "jobs"} {
		page := template.Must(base.Clone())
		all[name] = template.Must(page.ParseFS(files, "templates/"+name+".html"))
	}
	return all
}

// write writes a whole answer, without its body for HEAD.
func write(w http.ResponseWriter, r *http.Request, code int, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the browser may have gone
	}
}
