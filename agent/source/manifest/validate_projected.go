package manifest

import (
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of a token's lifetime in seconds.
const (
	minTokenLifetime = 600
	maxTokenLifetime = 1 << 32
)

// projected checks a projected volume. No two sources may write the same path.
func (c *checks) projected(v *v1.ProjectedVolumeSource, at *field.Path) {
	c.fileMode(at.Child("defaultMode"), v.DefaultMode)
	var targets []target
	taken := &targets
	for i := range v.Sources {
		source, at := &v.Sources[i], at.Child("sources").Index(i)
		if s := source.Secret; s != nil {
			c.name(at.Child("secret", "name"), s.Name, validation.IsDNS1123Subdomain)
			c.keys(s.Items, taken, at.Child("secret", "items"))
		}
		if s := source.ConfigMap; s != nil {
			c.name(at.Child("configMap", "name"), s.Name, validation.IsDNS1123Subdomain)
			c.keys(s.Items, taken, at.Child("configMap", "items"))
		}
		if s := source.DownwardAPI; s != nil {
			c.files(s.Items, taken, at.Child("downwardAPI", "items"))
		}
		if source.ServiceAccountToken != nil {
			c.token(source.ServiceAccountToken, taken, at.Child("serviceAccountToken"))
		}
		if source.ClusterTrustBundle != nil {
			c.trustBundle(source.ClusterTrustBundle, taken, at.Child("clusterTrustBundle"))
		}
		c.forbid(len(setFields(source)) > 1, at, "may not specify more than 1 volume type per source")
	}
	c.collisions(targets)
}

func (c *checks) token(t *v1.ServiceAccountTokenProjection, taken *[]target, at *field.Path) {
	if life := t.ExpirationSeconds; life != nil {
		c.invalid(*life < minTokenLifetime, at.Child("expirationSeconds"), *life, "may not specify a duration less than 10 minutes")
		c.invalid(*life > maxTokenLifetime, at.Child("expirationSeconds"), *life, "may not specify a duration larger than 2^32 seconds")
	}
	c.noControl(at.Child("audience"), t.Audience)
	c.volumePath(t.Path, taken, at.Child("path"))
}

func (c *checks) trustBundle(b *v1.ClusterTrustBundleProjection, taken *[]target, at *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		c.add(field.Invalid(at, "", "only one of name and signerName may be used"))
	case b.Name != nil:
		// A name may begin with its signer's name, with a colon for the slash.
		c.name(at.Child("name"), *b.Name, func(name string) []string {
			return validation.IsDNS1123Subdomain(strings.ReplaceAll(name, ":", "."))
		})
		c.invalid(b.LabelSelector != nil, at.Child("labelSelector"), "", "labelSelector must be unset if name is specified")
	case b.SignerName != nil:
		c.name(at.Child("signerName"), *b.SignerName, isSigner)
		if _, err := metav1.LabelSelectorAsSelector(b.LabelSelector); err != nil {
			c.add(field.Invalid(at.Child("labelSelector"), "", err.Error()))
		}
	default:
		c.add(field.Required(at, "either name or signerName must be specified"))
	}
	c.volumePath(b.Path, taken, at.Child("path"))
}

// isSigner validates signer names such as example.com/serving.
func isSigner(name string) []string {
	domain, rest, ok := strings.Cut(name, "/")
	if !ok || rest == "" {
		return []string{"must be a fully qualified domain and path of the form 'example.com/signer-name'"}
	}
	return append(validation.IsDNS1123Subdomain(domain), validation.IsDNS1123Subdomain(strings.ReplaceAll(rest, "/", "."))...)
}

// keys checks the mapping from keys of a ConfigMap or Secret to files.
func (c *checks) keys(items []v1.KeyToPath, taken *[]target, at *field.Path) {
	for i := range items {
		item, at := &items[i], at.Index(i)
		c.required(at.Child("key"), item.Key)
		c.volumePath(item.Path, taken, at.Child("path"))
		c.fileMode(at.Child("mode"), item.Mode)
	}
}

// target is a file in a volume.
type target struct {
	name string
	at   *field.Path
}

// volumePath checks the path of a file in a volume, and appends it to taken
// unless that is nil. Names that begin with ".." are reserved for the volume's
// atomic writer.
func (c *checks) volumePath(name string, taken *[]target, at *field.Path) {
	if !c.required(at, name) {
		return
	}
	c.invalid(strings.HasPrefix(name, "..") && !strings.HasPrefix(name, "../"), at, name, "must not start with '..'")
	c.descending(at, name)
	if taken != nil {
		*taken = append(*taken, target{name, at})
	}
}

// collisions rejects two files with the same path, and a file where another one
// needs a directory.
func (c *checks) collisions(targets []target) {
	// With a zero byte for each slash, the paths below a path sort directly
	// after it.
	key := func(t target) string { return strings.ReplaceAll(path.Clean(t.name), "/", "\x00") }
	keys := make(map[string]target, len(targets))
	for _, t := range targets {
		_, taken := keys[key(t)]
		c.invalid(taken, t.at, t.name, "conflicting duplicate paths")
		keys[key(t)] = t
	}
	before := ""
	for i, k := range slices.Sorted(maps.Keys(keys)) {
		if i > 0 && strings.HasPrefix(k, before+"\x00") {
			c.add(field.Invalid(keys[k].at, keys[k].name, "conflicting duplicate paths"))
			continue
		}
		before = k
	}
}
