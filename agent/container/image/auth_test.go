package image

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tinylet/tinylet/agent/container/fake"
)

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestParseDockerConfig(t *testing.T) {
	both := dockerConfig{"a.example": {username: "u", password: "p:w"}, "b.example": {username: "v", password: "x"}}
	tests := []struct {
		name   string
		text   string
		legacy bool
		want   dockerConfig
		bad    bool
	}{
		{name: "config.json", text: `{"auths":{"a.example":{"auth":"` + base64Of("u:p:w") + `","email":"e"},"b.example":{"username":"v","password":"x"}},"HttpHeaders":{"a":"b"},"credsStore":"x"}`, want: both},
		{name: "dockercfg", legacy: true, text: `{"a.example":{"auth":"` + base64Of("u:p:w") + `"},"b.example":{"username":"v","password":"x"}}`, want: both},
		{name: "auth without padding", text: `{"auths":{"a.example":{"auth":" ` + strings.TrimRight(base64Of("u:pw"), "=") + `\n"}}}`, want: dockerConfig{"a.example": {username: "u", password: "pw"}}},
		{name: "auth wins", text: `{"auths":{"a":{"username":"x","password":"y","auth":"` + base64Of("u:p") + `"}}}`, want: dockerConfig{"a": {username: "u", password: "p"}}},
		{name: "no entries", text: `{}`, want: dockerConfig{}},
		{name: "null", text: `null`, want: dockerConfig{}},
		{name: "empty", text: ``, bad: true},
		{name: "a list", text: `[]`, bad: true},
		{name: "not base64", text: `{"auths":{"a":{"auth":"hunter2!"}}}`, bad: true},
		{name: "no colon", text: `{"auths":{"a":{"auth":"` + base64Of("hunter2") + `"}}}`, bad: true},
		{name: "broken", text: `{"auths":{"a":{"password":"hunter2"`, bad: true},
		{name: "too large", text: `{"auths":{}}` + strings.Repeat(" ", maxDockerConfig), bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseDockerConfig([]byte(tt.text), tt.legacy)
			if (err != nil) != tt.bad {
				t.Fatalf("error is %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes a password: %v", err)
			}
			if !tt.bad && !maps.Equal(got, tt.want) {
				t.Errorf("%d entries, want %d: or others", len(got), len(tt.want))
			}
		})
	}
}

func TestCredentialsDoNotPrint(t *testing.T) {
	c := credential{username: "u", password: "hunter2"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(verb, []credential{c}); strings.Contains(s, "hunter2") {
			t.Errorf("%s prints %s", verb, s)
		}
	}
}

func TestLookup(t *testing.T) {
	tests := []struct {
		name  string
		image string
		keys  []string // each is also its user's name
		want  []string
	}{
		{"host", "a.example/app", []string{"a.example", "b.example"}, []string{"a.example"}},
		{"scheme and API path", "a.example/app", []string{"https://a.example/v2/", "http://a.example/v1/", "a.example/v1/"}, []string{"a.example/v1/", "http://a.example/v1/", "https://a.example/v2/"}},
		{"longest first", "a.example/x/y/app:1", []string{"a.example", "a.example/x", "a.example/x/y", "a.example/z"}, []string{"a.example/x/y", "a.example/x", "a.example"}},
		{"path under the API", "a.example/x/app", []string{"https://a.example/v2/x"}, []string{"https://a.example/v2/x"}},
		{"parts of a path count whole", "a.example/team-evil/app", []string{"a.example/team", "a.example/t"}, nil},
		{"path with a slash", "a.example/team/app", []string{"a.example/team/", "a.example/team/ap", "a.example/team/app/"}, []string{"a.example/team/app/", "a.example/team/"}},
		{"glob", "eu.a.example/app", []string{"*.a.example", "*.example", "e*.a.*", "e?.a.example", "[a-e]u.a.example"}, []string{"e*.a.*", "*.a.example"}},
		{"glob has as many labels", "x.y.a.example/app", []string{"*.a.example", "*.*.a.example"}, []string{"*.*.a.example"}},
		{"bad glob", "a.example/app", []string{"[.example"}, nil},
		{"port", "a.example:5000/app", []string{"a.example", "a.example:5000", "a.example:5001", "*.example:5000"}, []string{"a.example:5000", "*.example:5000"}},
		{"address", "[fd00::1]:5000/app", []string{"[fd00::1]:5000", "[fd00::1]"}, []string{"[fd00::1]:5000"}},
		{"hub by its old name", "busybox", []string{"https://index.docker.io/v1/", "a.example"}, []string{"https://index.docker.io/v1/"}},
		{"hub by its name", "team/app", []string{"docker.io", "https://index.docker.io/v1/"}, []string{"docker.io"}},
		{"hub with a path", "busybox", []string{"docker.io/library", "docker.io/other"}, []string{"docker.io/library"}},
		{"not the hub", "localhost/busybox", []string{"https://index.docker.io/v1/"}, nil},
		{"no URL", "a.example/app", []string{"a.example:port", "%zz", ""}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, err := ParseName(tt.image)
			if err != nil {
				t.Fatal(err)
			}
			c := make(dockerConfig)
			for _, key := range tt.keys {
				c[key] = credential{username: key}
			}
			ring := make(keyring)
			ring.add(c)
			var got []string
			for _, c := range ring.lookup(n) {
				got = append(got, c.username)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("credentials (-want +got):\n%s", diff)
			}
		})
	}
}

func secret(name, registry, user, password string) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Type:       v1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{v1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, registry, base64Of(user+":"+password))},
	}
}

func (b *bench) ensureWith(uid, image string, secrets ...*v1.Secret) (string, error) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: uid}}
	c := &v1.Container{Name: "main", Image: image, ImagePullPolicy: v1.PullAlways}
	ref, _, err := b.puller.Ensure(b.Context(), p, c, Options{Secrets: secrets})
	return ref, err
}

// accept adds an image whose pull accepts one password, and records the
// credentials of each attempt.
func (b *bench) accept(image, password string) (tried func() []string) {
	var mu sync.Mutex
	var seen []string
	b.rt.SetPull(image, fake.Pull{Auth: func(a *runtimeapi.AuthConfig) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, a.GetUsername())
		if a.GetPassword() != password {
			return fmt.Errorf("401: the password %s of basic %s is wrong", a.GetPassword(), base64Of(a.GetUsername()+":"+a.GetPassword()))
		}
		return nil
	}})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func TestPullSecrets(t *testing.T) {
	const img = "a.example/team/app:1"
	run(t, true, func(b *bench) {
		home := t.TempDir()
		b.puller.cfg.Node = NewNodeAuth(t.TempDir(), home, slog.New(slog.DiscardHandler))
		write(t, filepath.Join(home, ".docker/config.json"), `{"auths":{"a.example":{"auth":"`+base64Of("node:right")+`"}}}`)
		tried := b.accept(img, "right")
		legacy := &v1.Secret{Type: v1.SecretTypeDockercfg, Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"a.example":{"username":"old","password":"wrong1"}}`)}}
		opaque := &v1.Secret{Type: v1.SecretTypeOpaque, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":{"a.example":{"username":"opaque"}}}`)}}
		other := secret("other", "b.example", "other", "right")
		empty := &v1.Secret{Type: v1.SecretTypeDockerConfigJson}
		ref, err := b.ensureWith("a", img, opaque, legacy, other, empty, secret("s", "a.example/team", "team", "wrong2"))
		if err != nil || ref == "" {
			t.Fatalf("Ensure: %q, %v", ref, err)
		}
		if diff := cmp.Diff([]string{"team", "old", "node"}, tried()); diff != "" {
			t.Errorf("tried (-want +got):\n%s", diff)
		}
	})
}

// TestServerAddress shows that credentials name a host: containerd otherwise
// sends them to every host that it contacts for an image.
func TestServerAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		image   string
		mirrors bool
		want    []string
	}{
		"registry":               {image: "a.example:5000/team/app:1", want: []string{"https://a.example:5000"}},
		"registry of an address": {image: "[fd00::1]:5000/app:1", want: []string{"https://[fd00::1]:5000"}},
		"hub":                    {image: "docker.io/team/app:1", want: []string{"https://registry-1.docker.io", "https://docker.io"}},
		"mirrors are asked too":  {image: "a.example:5000/team/app:1", mirrors: true, want: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, true, func(b *bench) {
				b.puller.cfg.MirrorCredentials = tt.mirrors
				var got []string
				b.rt.SetPull(tt.image, fake.Pull{Auth: func(a *runtimeapi.AuthConfig) error {
					got = append(got, a.GetServerAddress())
					return errors.New("401")
				}})
				host, _, _ := strings.Cut(tt.image, "/")
				if _, err := b.ensureWith("a", tt.image, secret("s", host, "u", "right")); err == nil {
					t.Error("the image was pulled")
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("shown to (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestRefusedCredentials(t *testing.T) {
	const img = "a.example/app:1"
	run(t, true, func(b *bench) {
		b.accept(img, "right")
		broken := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"hunter1`)}}
		_, err := b.ensureWith("a", img, secret("s", "a.example", "u", "hunter2"), broken, secret("t", "a.example", "v", "hunter3"))
		failure := new(Error)
		if !errors.As(err, &failure) || failure.Reason != ReasonPull {
			t.Fatalf("the error is %v", err)
		}
		if !strings.Contains(failure.Message, "401") || !strings.Contains(failure.Message, `"broken"`) {
			t.Errorf("the message is %q", failure.Message)
		}
		texts := []string{failure.Message, failure.Error(), fmt.Sprintf("%+v", failure)}
		for _, e := range b.events.Recent() {
			texts = append(texts, e.Message)
		}
		for _, text := range texts {
			for _, word := range []string{"hunter", base64Of("u:hunter2")} {
				if strings.Contains(text, word) {
					t.Errorf("a secret is in %q", text)
				}
			}
		}
	})
}

// TestFlightsByCredentials shows that a pod without the right secret does not
// get an image, nor a failure, through another pod's pull.
func TestFlightsByCredentials(t *testing.T) {
	const img = "a.example/app:1"
	run(t, false, func(b *bench) {
		b.rt.SetPull(img, fake.Pull{Delay: time.Minute, Auth: func(a *runtimeapi.AuthConfig) error {
			if a.GetPassword() != "right" {
				return errors.New("401")
			}
			return nil
		}})
		right, wrong := secret("s", "a.example", "u", "right"), secret("s", "a.example", "u", "wrong")
		var wg sync.WaitGroup
		for i, tt := range []struct {
			secret *v1.Secret
			works  bool
		}{{right, true}, {wrong, false}, {right, true}, {wrong, false}} {
			wg.Go(func() {
				if _, err := b.ensureWith(fmt.Sprint(i), img, tt.secret); (err == nil) != tt.works {
					t.Errorf("pod %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if n := b.rt.Count("PullImage"); n != 2 {
			t.Errorf("%d pulls, want 2", n)
		}
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNodeAuth(t *testing.T) {
	root, home := t.TempDir(), t.TempDir()
	a := NewNodeAuth(root, home, slog.New(slog.DiscardHandler))
	n, err := ParseName("a.example/app")
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for _, c := range a.lookup(n) {
			got = append(got, c.username)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("credentials (-want +got):\n%s", diff)
		}
	}
	entry := func(user string) string { return fmt.Sprintf(`{"a.example":{"username":%q}}`, user) }
	expect()
	write(t, filepath.Join(home, ".dockercfg"), entry("home, legacy"))
	expect("home, legacy")
	write(t, filepath.Join(home, ".docker/config.json"), `{"auths":`+entry("home")+`}`)
	expect("home")
	write(t, filepath.Join(root, "config.json"), `{"auths":`+entry("root")+`}`)
	expect("root")
	write(t, filepath.Join(root, "config.json"), `nonsense`)
	expect("home") // the next that makes sense
	write(t, filepath.Join(root, "config.json"), `{"auths":`+entry("root again")+`}`)
	expect("root again")
	if err := os.Remove(filepath.Join(root, "config.json")); err != nil {
		t.Fatal(err)
	}
	expect("home")
	if err := os.RemoveAll(filepath.Join(home, ".docker")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(home, ".docker/config.json/x"), "") // a folder in its place
	expect("home, legacy")
}

func TestMaxParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Config{MaxParallel: 2})
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range 5 {
			image := fmt.Sprintf("localhost/app:%d", i)
			b.rt.SetPull(image, fake.Pull{Delay: time.Minute})
			wg.Go(func() { b.works("a", image, v1.PullIfNotPresent) })
		}
		wg.Wait()
		if took := time.Since(begun); took != 3*time.Minute {
			t.Errorf("five pulls, two at a time, took %v", took)
		}
	})
}

func TestProgress(t *testing.T) {
	run(t, true, func(b *bench) {
		b.rt.SetPull("localhost/app:1", fake.Pull{Delay: 29 * time.Second})
		b.rt.SetPull("localhost/app:2", fake.Pull{Delay: 3 * time.Minute})
		b.works("a", "localhost/app:1", v1.PullAlways)
		b.works("a", "localhost/app:2", v1.PullAlways)
		var got []string
		for _, e := range b.events.Recent() {
			if strings.HasPrefix(e.Message, "Still") {
				got = append(got, fmt.Sprint(e.Count, " ", e.Message))
			}
		}
		// After 30, 90 and 150 seconds.
		if diff := cmp.Diff([]string{`3 Still pulling image "localhost/app:2"`}, got); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
}

func TestPreloaded(t *testing.T) {
	const img = "busybox:1"
	tests := []struct {
		name    string
		policy  v1.PullPolicy
		present bool
		known   bool // there is an archive
		imports bool // and it has the image
		asked   int
		pulls   int
		works   bool
	}{
		{name: "imported, not pulled", policy: v1.PullIfNotPresent, known: true, imports: true, asked: 1, works: true},
		{name: "imported for Never", policy: v1.PullNever, known: true, imports: true, asked: 1, works: true},
		{name: "present, not asked", policy: v1.PullIfNotPresent, present: true, works: true},
		{name: "no archive", policy: v1.PullIfNotPresent, asked: 1, pulls: 1, works: true},
		{name: "broken archive", policy: v1.PullIfNotPresent, known: true, asked: 1, pulls: 1, works: true},
		{name: "broken archive for Never", policy: v1.PullNever, known: true, asked: 1},
		{name: "Always asks the registry", policy: v1.PullAlways, known: true, imports: true, pulls: 1, works: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, true, func(b *bench) {
				asked := 0
				b.rt.SetPull(img, fake.Pull{})
				if tt.present {
					b.rt.AddImage(img, fake.Program{})
				}
				b.puller.cfg.WaitPreloaded = func(_ context.Context, ref string) bool {
					asked++
					if ref != "docker.io/library/busybox:1" {
						t.Errorf("asked for %q", ref)
					}
					time.Sleep(time.Minute)
					if tt.imports {
						b.rt.AddImage(img, fake.Program{})
					}
					return tt.known
				}
				_, err := b.ensure(b.Context(), "a", img, tt.policy)
				if (err == nil) != tt.works {
					t.Errorf("Ensure: %v", err)
				}
				if n := b.rt.Count("PullImage"); n != tt.pulls || asked != tt.asked {
					t.Errorf("%d pulls, asked %d times; want %d, %d", n, asked, tt.pulls, tt.asked)
				}
			})
		})
	}
}

func FuzzDockerConfig(f *testing.F) {
	f.Add([]byte(`{"auths":{"a.example":{"auth":"dTpw"}}}`), false)
	f.Add([]byte(`{"https://index.docker.io/v1/":{"username":"u","password":"p"}}`), true)
	f.Add([]byte(`{"auths":{"*.a.example:5000/x":{"auth":""}}}`), false)
	n := Name{Domain: "a.example", Path: "x/y", Tag: "1"}
	f.Fuzz(func(_ *testing.T, data []byte, legacy bool) {
		c, err := parseDockerConfig(data, legacy)
		if err != nil {
			return
		}
		ring := make(keyring)
		ring.add(c)
		ring.lookup(n)
		ring.lookup(Name{Domain: dockerHub, Path: "library/x"})
	})
}

// FuzzLookup checks that an image's own registry and folder always fit, and
// that another host without globs never does.
func FuzzLookup(f *testing.F) {
	f.Add("a.example/team/app:1", "b.example")
	f.Add("busybox", "docker.io")
	f.Add("[fd00::1]:5000/app", "*")
	f.Fuzz(func(t *testing.T, image, key string) {
		n, err := ParseName(image)
		if err != nil {
			return
		}
		if _, err := url.Parse("https://" + n.Domain); err != nil {
			return // an image's name may have an address in it that is none
		}
		for _, own := range []string{n.Domain, n.Domain + "/" + n.Path, "https://" + n.Domain} {
			if k, ok := registryKey(own); !ok || !matchesRegistry(k, n) {
				t.Errorf("%q does not fit %q", own, image)
			}
		}
		k, ok := registryKey(key)
		host, _, _ := strings.Cut(k, "/")
		if ok && matchesRegistry(k, n) && !strings.ContainsAny(host, `*?[\%`) && host != n.Domain && host != n.Domain+":" {
			t.Errorf("%q fits %q", key, image)
		}
	})
}
