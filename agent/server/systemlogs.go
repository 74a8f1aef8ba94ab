package server

import (
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxListed limits the listed entries of a directory.
const maxListed = 1000

// systemLogs serves /logs/: a directory as a list of links, a file as its content. It
// does not follow symbolic links that lead out of the directory, and serves only
// regular files.
func (s *Server) systemLogs(w *deadlineWriter, r *http.Request, parts []string) {
	name := strings.Join(parts, "/")
	if name == "" {
		name = "."
	}
	root, err := os.OpenRoot(s.config.SystemLogs)
	if err != nil {
		noFile(w, r, err)
		return
	}
	defer root.Close()
	// Opening a named pipe must not block.
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		noFile(w, r, err)
		return
	}
	defer file.Close()
	info, err := file.Stat()
	folder := strings.HasSuffix(r.URL.Path, "/")
	switch {
	case err != nil:
		noFile(w, r, err)
	case info.IsDir() && !folder:
		redirect(w, r, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]+"/")
	case info.IsDir():
		list(w, r, file)
	case !info.Mode().IsRegular():
		http.Error(w, "403 Forbidden", http.StatusForbidden)
	case folder:
		redirect(w, r, "../"+parts[len(parts)-1])
	default:
		content(w, r, file, info)
	}
}

// noFile sends the error of a file that cannot be opened (toHTTPError in net/http).
func noFile(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, fs.ErrPermission) {
		http.Error(w, "403 Forbidden", http.StatusForbidden)
		return
	}
	http.NotFound(w, r) // also for invalid names and links that lead out
}

// redirect redirects to a path that is relative to the request's, because the request
// may have come through the API server's proxy.
func redirect(w http.ResponseWriter, r *http.Request, to string) {
	w.Header().Set("Location", (&url.URL{Path: "./" + to, RawQuery: r.URL.RawQuery}).String())
	w.WriteHeader(http.StatusMovedPermanently)
}

// content sends a file up to its current end.
func content(w *deadlineWriter, r *http.Request, file *os.File, info fs.FileInfo) {
	head := make([]byte, 512)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		http.Error(w, "500 Internal Server Error", http.StatusInternalServerError)
		return
	}
	kind := "application/octet-stream"
	if strings.HasPrefix(http.DetectContentType(head[:n]), "text/") {
		kind = "text/plain; charset=utf-8" // browsers must not run logged scripts
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "", info.ModTime(), file)
}

// list sends the entries of a directory in the format of http.FileServer.
func list(w *deadlineWriter, r *http.Request, folder *os.File) {
	entries, err := folder.ReadDir(maxListed)
	if err != nil && !errors.Is(err, io.EOF) {
		http.Error(w, "Error reading directory", http.StatusInternalServerError)
		return
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if _, err := io.WriteString(w, "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n"); err != nil {
		return // the client has disconnected
	}
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() {
			name += "/"
		}
		link := url.URL{Path: name}
		if _, err := fmt.Fprintf(w, "<a href=\"%s\">%s</a>\n", html.EscapeString(link.String()), html.EscapeString(name)); err != nil {
			return
		}
	}
	if len(entries) == maxListed {
		_, _ = fmt.Fprintf(w, "more than %d entries\n", maxListed-1)
	}
	_, _ = io.WriteString(w, "</pre>\n")
}
