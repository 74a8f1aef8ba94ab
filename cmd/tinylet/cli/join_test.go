package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tinylet/tinylet/agent/apiserver/bootstrap"
)

func TestTokenOfJoin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("abcdef.0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, token, file, stdin string
		want                     string // "" is an error
	}{
		{"flag", "abcdef.0123456789abcdef", "", "", "abcdef.0123456789abcdef"},
		{"file", "", file, "", "abcdef.0123456789abcdef"},
		{"standard input", "", "-", "abcdef.0123456789abcdef\n", "abcdef.0123456789abcdef"},
		{"both", "abcdef.0123456789abcdef", file, "", ""},
		{"neither", "", "", "", ""},
		{"no such file", "", file + "x", "", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := bootstrap.Options{Token: row.token}
			err := readToken(&o, row.file, strings.NewReader(row.stdin))
			if (err == nil) != (row.want != "") || err == nil && o.Token != row.want {
				t.Errorf("token %q, error %v", o.Token, err)
			}
		})
	}
}

// TestJoinRefuses checks that no error contains the token.
func TestJoinRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"no server":       {"--token", "abcdef.0123456789abcdef", "--ca-cert-hash", "sha256:00"},
		"no CA":           {"--server", "https://127.0.0.1:1", "--token", "abcdef.0123456789abcdef"},
		"a broken token":  {"--server", "https://127.0.0.1:1", "--token", "abcdef-0123456789abcdef", "--ca-cert-hash", "sha256:" + strings.Repeat("0", 64)},
		"a broken hash":   {"--server", "https://127.0.0.1:1", "--token", "abcdef.0123456789abcdef", "--ca-cert-hash", "md5:00"},
		"nobody is there": {"--server", "https://127.0.0.1:1", "--token", "abcdef.0123456789abcdef", "--ca-cert-hash", "sha256:" + strings.Repeat("0", 64)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := (&system{}).join()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SetArgs(append(args, "--kubeconfig", dir+"/kubelet.conf", "--bootstrap-kubeconfig", dir+"/bootstrap.conf", "--ca-file", dir+"/ca.crt"))
			err := cmd.ExecuteContext(t.Context())
			if err == nil || strings.Contains(err.Error(), "0123456789abcdef") {
				t.Errorf("error %v", err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%v was written", left)
			}
		})
	}
}

// TestJoinExamples checks that no example has a token on the command line, which every
// user can read in the process list.
func TestJoinExamples(t *testing.T) {
	cmd := (&system{}).join()
	for _, text := range []string{cmd.Use, cmd.Example} {
		if strings.Contains(text, "--token ") || !strings.Contains(text, "--token-file ") {
			t.Errorf("a token is on the command line:\n%s", text)
		}
	}
}

func TestJoinRequest(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	request := filepath.Join(dir, "request")
	if err := os.WriteFile(request, []byte(`{"server": "ftp://x", "token": "abcdef.0123456789abcdef", "caCertHashes": ["sha256:x"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--request-file", filepath.Join(dir, "missing")}, "no such file"},
		{[]string{"--request-file", garbage}, "read request to join"},
		{[]string{"--request-file", request, "--server", "https://x"}, "either --request-file or"},
		{[]string{"--request-file", request}, "sha256:x"},
	} {
		cmd := (&system{}).join()
		cmd.SetArgs(tc.args)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.want)
		}
	}
	if _, err := os.Stat(request); err != nil {
		t.Errorf("a request that failed: %v", err)
	}
}
