package identity

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// document is a kubeconfig with a cluster and a user as given.
func document(cluster, user string) string {
	return `apiVersion: v1
kind: Config
current-context: c
contexts:
- name: c
  context: {cluster: k, user: u}
clusters:
- name: k
  cluster: {` + cluster + `}
users:
- name: u
  user: {` + user + `}
`
}

const aServer = "server: 'https://10.0.0.1:6443'"

func TestParse(t *testing.T) {
	ca := base64.StdEncoding.EncodeToString([]byte("ca"))
	for _, row := range []struct {
		name, document string
		want           Kubeconfig
	}{
		{"little", document(aServer, ""), Kubeconfig{Server: "https://10.0.0.1:6443"}},
		{"data", document(aServer+", tls-server-name: name, certificate-authority-data: "+ca, "client-certificate-data: "+ca+", client-key-data: "+ca),
			Kubeconfig{Server: "https://10.0.0.1:6443", ServerName: "name", CA: []byte("ca"), Cert: []byte("ca"), Key: []byte("ca")}},
		{"files", document(aServer+", certificate-authority: ca.crt", "client-certificate: /a/b.pem, client-key: ../b.pem, tokenFile: t"),
			Kubeconfig{Server: "https://10.0.0.1:6443", caFile: "/etc/k/ca.crt", CertFile: "/a/b.pem", KeyFile: "/etc/b.pem", TokenFile: "/etc/k/t"}},
		{"data before files", document(aServer+", certificate-authority: ca.crt, certificate-authority-data: "+ca, "token: t"),
			Kubeconfig{Server: "https://10.0.0.1:6443", CA: []byte("ca"), Token: "t"}},
		{"insecure", document(aServer+", insecure-skip-tls-verify: true", ""), Kubeconfig{Server: "https://10.0.0.1:6443", Insecure: true}},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := Parse([]byte(row.document), "/etc/k")
			if err != nil || !reflect.DeepEqual(got, &row.want) {
				t.Errorf("%+v, %v; want %+v", got, err, row.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, row := range []struct{ name, document, want string }{
		{"nothing", "", "current-context"},
		{"no YAML", "\t{", "not a kubeconfig"},
		{"a pod", "kind: Pod\napiVersion: v1", "not a kubeconfig but v1 Pod"},
		{"no context", "current-context: x", `no context "x"`},
		{"no server", document("", ""), "server is missing"},
		{"a field in another case", strings.ReplaceAll(document(aServer, ""), "  context:", "  contExt:"), `no cluster ""`},
		{"insecure and a CA", document(aServer+", insecure-skip-tls-verify: true, certificate-authority: x", ""), "mutually exclusive"},
		{"a proxy of no kind", document(aServer+", proxy-url: 'ftp://x'", ""), `scheme "ftp"`},
		{"exec", document(aServer, "exec: {command: aws, apiVersion: v1}"), "exec: aws"},
		{"a provider", document(aServer, "auth-provider: {name: gcp}"), `auth-provider "gcp"`},
		{"a password", document(aServer, "username: u, password: hunter2"), "password"},
		{"somebody else", document(aServer, "token: t, as: admin"), "impersonation"},
		{"a certificate alone", document(aServer, "client-certificate: x"), "set together"},
		{"two of a name", strings.ReplaceAll(document(aServer, ""), "users:\n", "users:\n- name: u\n"), `user "u" is defined 2 times`},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := Parse([]byte(row.document), "/")
			if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v, want %q", err, row.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "k.conf")
	if _, err := Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := Load(dir); err == nil || strings.Count(err.Error(), dir) != 1 {
		t.Errorf("a directory: %v", err)
	}
	if err := os.WriteFile(path, []byte(document(aServer+", certificate-authority: ca.crt", "tokenFile: t")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "ca.crt") {
		t.Errorf("a CA that is not there: %v", err)
	}
	for name, data := range map[string]string{"ca.crt": "ca", "t": "secret\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k, err := Load(path)
	if err != nil || string(k.CA) != "ca" {
		t.Fatalf("%+v, %v", k, err)
	}
	connection := k.Connection()
	if token, err := connection.Token(); err != nil || token != "secret" {
		t.Errorf("token %q, %v", token, err)
	}
	// A token that was read once stays while its file is away.
	if err := os.Remove(filepath.Join(dir, "t")); err != nil {
		t.Fatal(err)
	}
	if token, err := connection.Token(); err != nil || token != "secret" {
		t.Errorf("token %q, %v", token, err)
	}
	if _, err := k.Connection().Token(); err == nil || strings.Count(err.Error(), k.TokenFile) != 1 {
		t.Errorf("a token file that is not there: %v", err)
	}
}

func TestBearerReadsAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t")
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &bearer{path: path}
	for _, want := range []string{"one", "one", "two"} {
		if want == "two" {
			b.fresh = time.Now().Add(-tokenAge)
		}
		if got, err := b.read(); err != nil || got != want {
			t.Errorf("token %q, %v; want %q", got, err, want)
		}
		if err := os.WriteFile(path, []byte("two"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzParse compares the parser with client-go's.
func FuzzParse(f *testing.F) {
	ca := base64.StdEncoding.EncodeToString([]byte("ca"))
	f.Add([]byte(document(aServer+", certificate-authority-data: "+ca, "client-certificate-data: "+ca+", client-key: k")))
	f.Add([]byte(document(aServer+", proxy-url: 'http://p:1', tls-server-name: x", "token: t, tokenFile: f")))
	f.Add([]byte(document(aServer, "exec: {command: c, apiVersion: v1}")))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := Parse(data, "/etc/k")
		if err != nil {
			if k != nil {
				t.Error("an error and a kubeconfig")
			}
			return
		}
		if again, err := k.Encode(); err != nil {
			t.Errorf("encode: %v", err)
		} else if back, err := Parse(again, "/etc/k"); err != nil {
			t.Errorf("parse again: %v\n%s", err, again)
		} else if k.caFile == "" && !reflect.DeepEqual(back, k) {
			t.Errorf("%+v came back as %+v", k, back)
		}
		theirs, err := clientcmd.Load(data)
		if err != nil {
			return // it is stricter about extensions and the like
		}
		context := theirs.Contexts[theirs.CurrentContext]
		if context == nil {
			t.Fatal("a context that client-go does not see")
		}
		cluster := theirs.Clusters[context.Cluster]
		if cluster == nil || cluster.Server != k.Server || cluster.TLSServerName != k.ServerName ||
			cluster.InsecureSkipTLSVerify != k.Insecure || !bytes.Equal(cluster.CertificateAuthorityData, k.CA) {
			t.Errorf("cluster %+v, and here %+v", cluster, k)
		}
		if user := theirs.AuthInfos[context.AuthInfo]; context.AuthInfo != "" && (user.Token != k.Token || !bytes.Equal(user.ClientCertificateData, k.Cert)) {
			t.Errorf("user %+v, and here %+v", user, k)
		}
	})
}
