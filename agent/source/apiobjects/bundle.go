package apiobjects

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
	"github.com/tinylet/tinylet/agent/source/objects"
)

// kindBundle is the kind of trust bundles.
const kindBundle = "ClusterTrustBundle"

// bundleAge is how long trust bundles are cached, as in the kubelet
// (pkg/kubelet/clustertrustbundle).
const bundleAge = 5 * time.Minute

// ErrNoBundles means that the API server does not serve ClusterTrustBundles of
// certificates.k8s.io/v1beta1, which is its default. It is not a NotFound
// error, so that it is reported even if a bundle is optional, as in the
// kubelet.
var ErrNoBundles = errors.New("the API server does not serve ClusterTrustBundles (certificates.k8s.io/v1beta1)")

// bundleKey selects trust bundles: one by name, or those of a signer by labels.
type bundleKey struct {
	name           string
	signer, labels string
}

func (k bundleKey) String() string {
	if k.name != "" {
		return kindBundle + " " + k.name
	}
	return kindBundle + " of signer " + k.signer
}

// bundleOf returns the selection of a projection. A signer without a label selector
// selects nothing, which is a NotFound error. An empty label selector selects all bundles
// of the signer.
func bundleOf(source *v1.ClusterTrustBundleProjection) (bundleKey, error) {
	switch {
	case source.Name != nil && *source.Name != "":
		return bundleKey{name: *source.Name}, nil
	case source.SignerName == nil || *source.SignerName == "":
		return bundleKey{}, errors.New("a ClusterTrustBundle projection needs a name or a signerName")
	}
	k := bundleKey{signer: *source.SignerName}
	selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector)
	if err != nil {
		return k, fmt.Errorf("%s: parse label selector: %w", k, err)
	}
	if source.LabelSelector == nil {
		return k, objects.NotFound(key{Kind: kindBundle, Name: k.signer})
	}
	k.labels = selector.String()
	return k, nil
}

// TrustBundle returns the selected trust anchors in PEM, each once and in an
// order that depends only on them. They are at most five minutes old, or older
// if the API server is unreachable. IsNotFound holds for the error if none are
// selected, and errors.Is ErrNoBundles if the API server does not serve the
// resource.
func (o *Objects) TrustBundle(ctx context.Context, source *v1.ClusterTrustBundleProjection) (string, error) {
	k, err := bundleOf(source)
	if err != nil {
		return "", err
	}
	return o.bundles.read(ctx, k)
}

func (o *Objects) fetchBundle(ctx context.Context, k bundleKey) (string, validity, error) {
	var list certificatesv1beta1.ClusterTrustBundleList
	var err error
	if k.name != "" {
		list.Items = make([]certificatesv1beta1.ClusterTrustBundle, 1)
		err = o.config.API.Get(ctx, apiclient.ClusterTrustBundles, "", k.name, &list.Items[0])
	} else {
		err = o.config.API.List(ctx, apiclient.ClusterTrustBundles, "", metav1.ListOptions{
			LabelSelector: k.labels,
			FieldSelector: fields.OneTermEqualSelector("spec.signerName", k.signer).String(),
		}, &list)
	}
	switch {
	case apierrors.IsNotFound(err) && (k.name == "" || apierrors.IsUnexpectedServerError(err)):
		return "", validity{}, fmt.Errorf("%s: %w", k, ErrNoBundles)
	case err != nil:
		return "", validity{}, fmt.Errorf("%s: %w", k, err)
	case len(list.Items) == 0:
		return "", validity{}, fmt.Errorf("no %s is selected: %w", k, objects.NotFound(key{Kind: kindBundle, Name: k.signer}))
	}
	bundles := make([]string, len(list.Items))
	for i := range list.Items {
		bundles[i] = list.Items[i].Spec.TrustBundle
	}
	return anchors(bundles), validFor(bundleAge), nil
}

// anchors returns the certificates of bundles in PEM, each once and sorted.
func anchors(bundles []string) string {
	all := make(map[string]struct{})
	for _, bundle := range bundles {
		for rest := []byte(bundle); ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			all[string(block.Bytes)] = struct{}{}
		}
	}
	var out strings.Builder
	for _, der := range slices.Sorted(maps.Keys(all)) {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(der)}))
	}
	return out.String()
}
