package store

import (
	"strings"
	"testing"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCredentials(t *testing.T) {
	for _, tt := range []struct {
		name               string
		auth               *runtimeapi.AuthConfig
		user, secret, fail string
	}{
		{name: "none"},
		{name: "empty", auth: &runtimeapi.AuthConfig{}},
		{name: "password", auth: &runtimeapi.AuthConfig{Username: "u", Password: "p", Auth: "eDp5"}, user: "u", secret: "p"},
		{name: "token", auth: &runtimeapi.AuthConfig{IdentityToken: "t"}, secret: "t"},
		{name: "encoded", auth: &runtimeapi.AuthConfig{Auth: "eDp5Onpb"}, user: "x", secret: "y:z["},
		{name: "encoded with zero bytes", auth: &runtimeapi.AuthConfig{Auth: "eDp5AAA="}, user: "x", secret: "y"},
		{name: "of this registry", auth: &runtimeapi.AuthConfig{Username: "u", Password: "p", ServerAddress: "https://registry.example:5000/v1/"}, user: "u", secret: "p"},
		{name: "of another registry", auth: &runtimeapi.AuthConfig{Username: "u", Password: "p", ServerAddress: "https://other.example"}},
		{name: "without a colon", auth: &runtimeapi.AuthConfig{Auth: "c2VjcmV0"}, fail: "user:password"},
		{name: "not encoded", auth: &runtimeapi.AuthConfig{Auth: "user:secret"}, fail: "user:password"},
		{name: "no address", auth: &runtimeapi.AuthConfig{Username: "u", ServerAddress: "https://secret\x00"}, fail: "server address"},
	} {
		user, secret, err := credentials(tt.auth, "registry.example:5000")
		if user != tt.user || secret != tt.secret || (err == nil) != (tt.fail == "") {
			t.Errorf("%s: %q, %q, %v", tt.name, user, secret, err)
		}
		if err != nil && (!strings.Contains(err.Error(), tt.fail) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestNames(t *testing.T) {
	id, target := digest.FromString("config"), digest.FromString("manifest")
	image := &Image{ID: id, Target: ocispec.Descriptor{Digest: target}}
	for in, want := range map[string]string{
		"busybox":                          "docker.io/library/busybox:latest docker.io/library/busybox@" + target.String(),
		"registry.example:5000/a/b:2":      "registry.example:5000/a/b:2 registry.example:5000/a/b@" + target.String(),
		"quay.io/a@" + target.String():     "quay.io/a@" + target.String(),
		"quay.io/a:1@" + target.String():   "quay.io/a@" + target.String(),
		"localhost/tag.with-all_of.them:x": "localhost/tag.with-all_of.them:x localhost/tag.with-all_of.them@" + target.String(),
	} {
		named, err := reference.ParseDockerRef(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(names(named, image), " "); got != id.String()+" "+want {
			t.Errorf("%s: %s", in, got)
		}
	}
}
