package image

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// maxDockerConfig limits the size of a docker config in bytes: the API's limit
// of a Secret.
const maxDockerConfig = 1 << 20

// credential is a user name and password for a registry. String and GoString do not return
// them.
type credential struct {
	username, password string
	// server is the URL of the only host that it may be sent to. An empty
	// string allows every host that the runtime contacts, including mirrors.
	server string
}

func (credential) String() string   { return "credential" }
func (credential) GoString() string { return "credential" }

// dockerConfig maps registries to credentials. A key is spelled as in the
// file: a host, with or without a scheme, port, path, and * in its labels.
type dockerConfig map[string]credential

// dockerEntry is an entry of a docker config. Other fields (email, identity
// tokens) are ignored, as in the kubelet.
type dockerEntry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"`
}

var errDockerConfig = errors.New("invalid docker config")

// parseDockerConfig parses a config.json (with the entries in auths), or a
// .dockercfg if legacy is set. Its errors do not quote the content.
func parseDockerConfig(data []byte, legacy bool) (dockerConfig, error) {
	if len(data) > maxDockerConfig {
		return nil, fmt.Errorf("docker config exceeds %d bytes", maxDockerConfig)
	}
	var file struct {
		Auths map[string]dockerEntry `json:"auths"`
	}
	var target any = &file
	if legacy {
		target = &file.Auths
	}
	if err := json.Unmarshal(data, target); err != nil {
		return nil, errDockerConfig
	}
	out := make(dockerConfig, len(file.Auths))
	for registry, e := range file.Auths {
		c := credential{username: e.Username, password: e.Password}
		if e.Auth != "" {
			var ok bool
			if c, ok = decodeAuth(e.Auth); !ok {
				return nil, fmt.Errorf("%w: auth of an entry is not base64 of user:password", errDockerConfig)
			}
		}
		out[registry] = c
	}
	return out, nil
}

// decodeAuth decodes base64 of user:password, with or without padding.
func decodeAuth(auth string) (credential, bool) {
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	if err != nil {
		return credential{}, false
	}
	username, password, ok := strings.Cut(string(text), ":")
	return credential{username: username, password: password}, ok
}

// secretConfig returns the docker config in a pull secret. It returns nil for
// a secret of another type, which is not an error, as in the kubelet.
func secretConfig(s *v1.Secret) (dockerConfig, error) {
	key, legacy := v1.DockerConfigJsonKey, false
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
	case v1.SecretTypeDockercfg:
		key, legacy = v1.DockerConfigKey, true
	default:
		return nil, nil
	}
	if len(s.Data[key]) == 0 {
		return nil, nil
	}
	c, err := parseDockerConfig(s.Data[key], legacy)
	if err != nil {
		return nil, fmt.Errorf("parse pull secret %q: %w", s.Name, err)
	}
	return c, nil
}
