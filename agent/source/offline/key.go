package offline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tinylet/tinylet/agent/source/objects"
	"github.com/tinylet/tinylet/agent/store/journal"
)

// Kinds in addition to those of package objects.
const (
	kindServices = "Services"
	kindBundle   = "TrustBundle"
	kindToken    = "Token"
)

// Prefixes of the journal's keys.
const (
	prefixPod    = "pod/"
	prefixEnd    = "end/"
	prefixObject = "object/"
	prefixToken  = "token/"
)

// maxAudience is the maximum length in bytes of an audience that is part of a
// key unhashed.
const maxAudience = 512

// key names an object that pods reference. namespace is empty for a
// cluster-scoped object. For a token, namespace is the pod's UID, and name its
// lifetime and audience.
type key struct {
	kind, namespace, name string
}

func (k key) String() string {
	if k.kind == kindToken {
		return prefixToken + k.namespace + "/" + k.name
	}
	return prefixObject + k.kind + "/" + k.namespace + "/" + k.name
}

// parseKey is the inverse of String. ok is false for a key that this version
// does not support.
func parseKey(text string) (k key, ok bool) {
	if rest, found := strings.CutPrefix(text, prefixToken); found {
		uid, name, found := strings.Cut(rest, "/")
		k = key{kindToken, uid, name}
		return k, found && k.valid()
	}
	rest, found := strings.CutPrefix(text, prefixObject)
	if !found {
		return key{}, false
	}
	kind, rest, _ := strings.Cut(rest, "/")
	namespace, name, found := strings.Cut(rest, "/")
	k = key{kind, namespace, name}
	return k, found && kind != kindToken && newMessage(kind) != nil && k.valid()
}

// valid reports whether the key can be a key of the journal and is unambiguous.
func (k key) valid() bool {
	return !strings.Contains(k.namespace, "/") && (k.kind == kindToken || !strings.Contains(k.name, "/")) &&
		(k.name != "" || k.kind == kindServices) && len(k.String()) <= journal.MaxKey
}

func podKey(uid types.UID) string { return prefixPod + string(uid) }

func endKey(uid types.UID) string { return prefixEnd + string(uid) }

// tokenKey includes the lifetime. Otherwise two volumes with tokens for one
// audience would overwrite each other's token forever.
func tokenKey(uid types.UID, audience string, life time.Duration) key {
	if len(audience) > maxAudience {
		sum := sha256.Sum256([]byte(audience))
		audience = "sha256:" + hex.EncodeToString(sum[:])
	}
	return key{kindToken, string(uid), strconv.FormatInt(int64(life/time.Second), 10) + "/" + audience}
}

// bundleKey returns the key of the trust anchors that the source selects,
// whatever path it writes them to.
func bundleKey(source *v1.ClusterTrustBundleProjection) (key, error) {
	selects := v1.ClusterTrustBundleProjection{Name: source.Name, SignerName: source.SignerName, LabelSelector: source.LabelSelector}
	data, err := selects.Marshal()
	if err != nil {
		return key{}, fmt.Errorf("encode trust bundle selection: %w", err)
	}
	sum := sha256.Sum256(data)
	return key{kindBundle, "", hex.EncodeToString(sum[:])}, nil
}

// refers reports whether an admitted pod needs the object of the key. A
// PersistentVolume may belong to any pod with a claim, since only the claim
// names it.
func (k key) refers(p *v1.Pod) bool {
	switch k.kind {
	case kindToken:
		return string(p.UID) == k.namespace
	case kindServices:
		// The services of "default" include the API server's own.
		links := p.Spec.EnableServiceLinks
		return k.namespace == v1.NamespaceDefault || p.Namespace == k.namespace && (links == nil || *links)
	case kindBundle:
		return selectsBundle(p, k)
	}
	return objects.PodReferences(p, objects.Key{Kind: k.kind, Namespace: k.namespace, Name: k.name})
}

func selectsBundle(p *v1.Pod, k key) bool {
	for source := range objects.TrustBundles(p) {
		if selected, err := bundleKey(source); err == nil && selected == k {
			return true
		}
	}
	return false
}
