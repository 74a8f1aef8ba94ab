package streaming

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestRequest(t *testing.T) {
	web := Name{Namespace: "shop", Pod: "web-0", Container: "main"}
	webUID := Name{Namespace: "shop", Pod: "web-0", UID: "4f3b-1", Container: "main"}
	for name, tt := range map[string]struct {
		method, path, query string
		webSocket           bool
		want                request
		code                int // of the refusal, or 0
	}{
		"exec":           {path: "/exec/shop/web-0/main", query: "command=ls&command=-l&output=1&error=1", want: request{verb: verbExec, name: web, cmd: []string{"ls", "-l"}, stdout: true, stderr: true}},
		"exec with UID":  {path: "/exec/shop/web-0/4f3b-1/main", query: "command=ls&output=1", want: request{verb: verbExec, name: webUID, cmd: []string{"ls"}, stdout: true}},
		"exec by GET":    {method: "GET", path: "/exec/shop/web-0/main", query: "command=ls&input=1", want: request{verb: verbExec, name: web, cmd: []string{"ls"}, stdin: true}},
		"terminal":       {path: "/exec/shop/web-0/main", query: "command=sh&input=1&output=1&error=1&tty=1", want: request{verb: verbExec, name: web, cmd: []string{"sh"}, stdin: true, stdout: true, tty: true}},
		"empty argument": {path: "/exec/shop/web-0/main", query: "command=echo&command=&output=1", want: request{verb: verbExec, name: web, cmd: []string{"echo", ""}, stdout: true}},
		"attach":         {path: "/attach/shop/web-0/main", query: "input=1&output=1&command=not+read", want: request{verb: verbAttach, name: web, stdin: true, stdout: true}},
		"run":            {path: "/run/shop/web-0/main", query: "cmd=ls+-l", want: request{verb: verbRun, name: web, cmd: []string{"ls", "-l"}}},
		"port-forward":   {path: "/portForward/shop/web-0", query: "port=not+read", want: request{verb: verbPortForward, name: Name{Namespace: "shop", Pod: "web-0"}}},
		"port-forward with UID": {path: "/portForward/shop/web-0/4f3b-1",
			want: request{verb: verbPortForward, name: Name{Namespace: "shop", Pod: "web-0", UID: "4f3b-1"}}},
		"ports": {path: "/portForward/shop/web-0", query: "port=80,443&port=65535", webSocket: true,
			want: request{verb: verbPortForward, name: Name{Namespace: "shop", Pod: "web-0"}, ports: []int32{80, 443, 65535}}},

		"terminal with stderr only": {path: "/exec/shop/web-0/main", query: "command=sh&error=1&tty=1", code: 400},
		"no stream":                 {path: "/attach/shop/web-0/main", query: "output=true", code: 400},
		"no command":                {path: "/exec/shop/web-0/main", query: "output=1", code: 400},
		"empty command":             {path: "/exec/shop/web-0/main", query: "output=1&command=", code: 400},
		"zero byte":                 {path: "/exec/shop/web-0/main", query: "output=1&command=a%00b", code: 400},
		"no UTF-8":                  {path: "/exec/shop/web-0/main", query: "output=1&command=a%ff", code: 400},
		"no cmd":                    {path: "/run/shop/web-0/main", query: "command=ls", code: 400},
		"semicolon":                 {path: "/exec/shop/web-0/main", query: "output=1;command=ls", code: 400},
		"escape":                    {path: "/exec/shop/web-0/main", query: "output=1&command=%zz", code: 400},
		"no port":                   {path: "/portForward/shop/web-0", webSocket: true, code: 400},
		"port 0":                    {path: "/portForward/shop/web-0", query: "port=0", webSocket: true, code: 400},
		"port beyond":               {path: "/portForward/shop/web-0", query: "port=65536", webSocket: true, code: 400},
		"port and nothing":          {path: "/portForward/shop/web-0", query: "port=80,", webSocket: true, code: 400},
		"many ports":                {path: "/portForward/shop/web-0", query: "port=1" + strings.Repeat(",1", maxPorts), webSocket: true, code: 400},
		"long query":                {path: "/exec/shop/web-0/main", query: "output=1&command=" + strings.Repeat("a", maxQuery), code: 414},
		"run by GET":                {method: "GET", path: "/run/shop/web-0/main", query: "cmd=ls", code: 405},
		"exec by PUT":               {method: "PUT", path: "/exec/shop/web-0/main", code: 405},
		"other path":                {path: "/pods", code: 404},
		"root":                      {path: "/", code: 404},
		"nothing":                   {path: "", code: 404},
		"too short":                 {path: "/exec/shop/web-0", code: 404},
		"too long":                  {path: "/exec/shop/web-0/4f3b-1/main/more", code: 404},
		"slash at the end":          {path: "/exec/shop/web-0/main/", code: 404},
		"empty part":                {path: "/exec//web-0/main", code: 404},
		"up":                        {path: "/exec/shop/../main", code: 404},
		"line feed":                 {path: "/exec/shop/web\n0/main", code: 404},
		"long name":                 {path: "/exec/shop/" + strings.Repeat("a", maxName+1) + "/main", code: 404},
		"port-forward to container": {path: "/portForward/shop/web-0/4f3b-1/main", code: 404},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.method == "" {
				tt.method = http.MethodPost
			}
			got, err := parsePath(tt.method, tt.path)
			if err == nil {
				err = got.parseQuery(tt.query, tt.webSocket)
			}
			if tt.code != 0 {
				if r := (*httpError)(nil); !errors.As(err, &r) || r.code != tt.code {
					t.Fatalf("%v, want %d", err, tt.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(request{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzRequest: each request is rejected with a 4xx code, or has only values that are
// valid in CRI.
func FuzzRequest(f *testing.F) {
	f.Add("/exec/a/b/c", "command=ls&output=1", false)
	f.Add("/attach/a/b/d/c", "input=1&tty=1", true)
	f.Add("/portForward/a/b", "port=80,443", true)
	f.Add("/run/a/b/c", "cmd=ls+-l", false)
	f.Add("/exec/../%2e%2e/c", "command=%00", false)
	f.Fuzz(func(t *testing.T, path, query string, webSocket bool) {
		asked, err := parsePath(http.MethodPost, path)
		if err == nil {
			err = asked.parseQuery(query, webSocket)
		}
		if err != nil {
			if r := (*httpError)(nil); !errors.As(err, &r) || r.code < 400 || r.code > 499 {
				t.Fatalf("%q?%q: %v", path, query, err)
			}
			return
		}
		for _, name := range []string{asked.name.Namespace, asked.name.Pod} {
			if !isName(name) {
				t.Errorf("%q has the name %q", path, name)
			}
		}
		if (asked.name.Container == "") != (asked.verb == verbPortForward) {
			t.Errorf("%q has the container %q", path, asked.name.Container)
		}
		// The path says no more than what was read from it.
		words := []string{"", string(asked.verb), asked.name.Namespace, asked.name.Pod}
		for _, word := range []string{asked.name.UID, asked.name.Container} {
			if word != "" {
				words = append(words, word)
			}
		}
		if again := strings.Join(words, "/"); again != "/"+strings.TrimPrefix(path, "/") {
			t.Errorf("%q was read as %q", path, again)
		}
		for _, word := range asked.cmd {
			if !utf8.ValidString(word) || strings.Contains(word, "\x00") {
				t.Errorf("%q has the word %q", query, word)
			}
		}
		switch asked.verb {
		case verbExec, verbAttach:
			if asked.tty && asked.stderr || !asked.stdin && !asked.stdout && !asked.stderr {
				t.Errorf("%q asks for %+v", query, asked)
			}
		case verbRun:
			if len(asked.cmd) == 0 {
				t.Errorf("%q runs nothing", query)
			}
		case verbPortForward:
			if webSocket && (len(asked.ports) == 0 || len(asked.ports) > maxPorts) {
				t.Errorf("%q asks for %d ports", query, len(asked.ports))
			}
		}
		if _, err := url.ParseQuery(query); err != nil {
			t.Errorf("%q was read: %v", query, err)
		}
	})
}
