package server

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// logTree creates a log directory with entries of all types, next to a secret file.
func logTree(t testing.TB, dir string) {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	for path, content := range map[string]string{
		secret: "secret", dir + "/messages": "hello\n", dir + "/page.html": "<script>alert(1)</script>", dir + "/wtmp": "\x00\x01\x02",
		dir + "/pods/web/0.log": "log\n", dir + "/with space & <b>": "odd\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"inside": "messages", "outside": secret, "up": "../../../../../../../../../etc/passwd", "folder": "pods", "etc": "/etc", "loop": "loop",
		"absolute": dir + "/messages",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSystemLogs(t *testing.T) {
	b := newBoard(t)
	logTree(t, b.config.SystemLogs)
	b.start()
	admin := b.admin()
	for path, want := range map[string]struct {
		code           int
		text, location string
	}{
		"/logs/messages":                    {200, "hello\n", ""},
		"/logs/messages?query=sshd":         {200, "hello\n", ""}, // no query of the journal is offered
		"/logs/pods/web/0.log":              {200, "log\n", ""},
		"/logs/folder/web/0.log":            {200, "log\n", ""},
		"/logs/inside":                      {200, "hello\n", ""},
		"/logs/with%20space%20&%20%3Cb%3E":  {200, "odd\n", ""},
		"/logs":                             {301, "", "./logs/"},
		"/logs/pods":                        {301, "", "./pods/"},
		"/logs/pods?x=1":                    {301, "", "./pods/?x=1"},
		"/logs/messages/":                   {301, "", "./../messages"},
		"/logs/outside":                     {404, "404 page not found\n", ""},
		"/logs/absolute":                    {404, "404 page not found\n", ""},
		"/logs/up":                          {404, "404 page not found\n", ""},
		"/logs/etc/passwd":                  {404, "404 page not found\n", ""},
		"/logs/etc/":                        {404, "404 page not found\n", ""},
		"/logs/loop":                        {404, "404 page not found\n", ""},
		"/logs/none":                        {404, "404 page not found\n", ""},
		"/logs/messages/x":                  {404, "404 page not found\n", ""},
		"/logs/messages%00":                 {404, "404 page not found\n", ""},
		"/logs/%00":                         {404, "404 page not found\n", ""},
		"/logs/%ff%fe":                      {404, "404 page not found\n", ""},
		"/logs/" + strings.Repeat("x", 300): {404, "404 page not found\n", ""},
		"/logs/pipe":                        {403, "403 Forbidden\n", ""},
		"/logs/../pods":                     {307, "", "/pods"},
		"/logs/%2e%2e/%2e%2e/etc/passwd":    {307, "", "/etc/passwd"},
		"/logs//messages":                   {307, "", "/logs/messages"},
		"/logs/./messages":                  {307, "", "/logs/messages"},
	} {
		got := b.ask(admin, "GET", path)
		if got.code != want.code || want.text != "" && got.text != want.text || got.header.Get("Location") != want.location {
			t.Errorf("%s: %d %q to %q, want %d %q to %q", path, got.code, got.text, got.header.Get("Location"), want.code, want.text, want.location)
		}
	}
	for path, want := range map[string]string{
		"/logs/messages": plainText, "/logs/page.html": plainText, "/logs/wtmp": "application/octet-stream", "/logs/": "text/html; charset=utf-8",
	} {
		got := b.ask(admin, "GET", path)
		if kind := got.header.Get("Content-Type"); kind != want || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %q", path, kind)
		}
	}
	list := b.ask(admin, "GET", "/logs/").text
	for _, want := range []string{
		`<a href="messages">messages</a>`, `<a href="pods/">pods/</a>`, `<a href="with%20space%20&amp;%20%3Cb%3E">with space &amp; &lt;b&gt;</a>`,
	} {
		if !strings.Contains(list, want+"\n") {
			t.Errorf("%s is missing in:\n%s", want, list)
		}
	}
	response, err := b.send(t.Context(), admin, "GET", "/logs/messages", http.Header{"Range": {"bytes=1-3"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.read(response); got.code != http.StatusPartialContent || got.text != "ell" {
		t.Errorf("a range: %d %q", got.code, got.text)
	}
}

// TestListIsBounded: the listing of a directory with very many entries is limited.
func TestListIsBounded(t *testing.T) {
	b := newBoard(t)
	for i := range maxListed + 10 {
		if err := os.WriteFile(filepath.Join(b.config.SystemLogs, fmt.Sprintf("%04d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.start()
	response, err := b.send(t.Context(), b.admin(), "GET", "/logs/", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "<a href="); n != maxListed || !strings.Contains(string(data), "more than 999 entries") {
		t.Errorf("%d entries", n)
	}
}
